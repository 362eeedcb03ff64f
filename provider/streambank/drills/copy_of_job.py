"""The job that runs on the copy: the same application, and nothing of the live job within its reach.

Its checkpoints, records, launches and outputs are all below one scratch location, so that it takes no lease
and no lock of the live job, moves none of its records, and goes away with that location.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from streambank.checkpoint.replay import Replay
from streambank.control.control import JobControl
from streambank.core.errors import InputError
from streambank.declaration.declaration import Job
from streambank.inputs.folders import folders_of_live
from streambank.recovery.lay_out import live_places
from streambank.sinks.redirect import Redirect
from streambank.storage import is_inside, normalize_location, open_store

_LONGEST_NAME = 52
"""Characters: Kubernetes takes 63 for a label, which begins with `streambank-` (declaration/launch.py)."""


def scratch_of(job: Job, name: str) -> str:
    """Where a drill lays out its copy by default: beside the job's checkpoint, where Spark can write."""
    folder = normalize_location(job.drill.scratch or f"{job.checkpoint}.drills")
    if job.checkpoint.startswith("s3a://"):  # the name by which the job's Spark knows S3
        folder = re.sub(r"\As3n?://", "s3a://", folder)
    return f"{folder}/{job.name}/{name}"


def check_scratch(job: Job, control: JobControl, scratch: str, source: str) -> None:
    """Make sure that the copy lies in nothing that is live, and that nothing live lies in it.

    Where the job is one on a copy of another one's state, that other one is live, too.

    Raises:
        InputError: It does not lie apart (codes `scratch-not-apart`, `inside-input`, `inside-output`).
    """
    for name, declared in job.queries.items():
        generation = control.generation(name)
        place = declared if generation is None else generation.location
        folders_of_live(open_store(place)).without([place]).check(scratch, "scratch")
    for place in live_places(job, control, source):
        if is_inside(scratch, place) or is_inside(place, scratch):
            raise InputError(
                f"A drill would lay out its copy in {scratch}, not apart from {place} of the live job.",
                code="scratch-not-apart",
                hint="Give a scratch that is apart: drill.scratch of the job, or --scratch.",
            )
    if job.original is not None:
        check_scratch(job.original, job.original.records(), scratch, source)


def checkpoint_in(scratch: str, query: str) -> str:
    """Where the checkpoint of a query's copy is."""
    return f"{scratch}/checkpoint/{query}"


def output_in(scratch: str, query: str) -> str:
    """Where a query's copy writes."""
    return f"{scratch}/output/{query}"


def plans_in(scratch: str, query: str) -> str:
    """Where the plans of the live query's batches are that a copy executes again."""
    return f"{scratch}/plans/{query}"


def copy_of(job: Job, scratch: str, replays: Mapping[str, Replay]) -> Job:
    """The job of a drill.

    Args:
        replays: The batches that its queries execute again, by name; a query without one goes on by itself.
    """
    queries = {name: checkpoint_in(scratch, name) for name in job.queries}
    apart = f"-drill-{scratch.rpartition('-')[2]}"
    return replace(
        job,
        # A cluster finds the drivers of a job by its name, and must never take the live one for the copy's.
        name=f"{job.name[: _LONGEST_NAME - len(apart)]}{apart}",
        queries=queries,
        checkpoint=next(iter(queries.values())),
        repository=f"{scratch}/repository",
        control=f"{scratch}/control",
        redirects={
            name: Redirect(output_in(scratch, name), scratch=True, sources=job.drill.sources)
            for name in queries
        },
        replays=replays,
        standby=None,
        primary=None,
        # A drill of the job on a copy is not that copy: no refresh has made it, and its outputs are scratch.
        copy=None,
        original=None,
        copies={},
        sinks=(),
        notify=(),
        hot_keys=None,  # the live driver measures what it reads; a drill compares without it, and sooner
    )
