"""Laying a savepoint out in a fresh directory: for a restore, a drill and a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from streambank.control.control import JobControl
from streambank.control.target_owner import restoring
from streambank.core.errors import IntegrityError, StreambankError
from streambank.declaration.declaration import Job
from streambank.recovery.sinks.sinks import begin_outputs, look_at_sinks
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.savepoint.materialize import MaterializeReport, materialize
from streambank.storage.store import Store
from streambank.work.executor import Pace


def live_places(job: Job, control: JobControl, source: str) -> list[str]:
    """Everything of a live job that a copy of it must lie apart from.

    Args:
        source: The repository that the savepoints come from.
    """
    live = {job.repository, source, control.store.uri, *job.replicate.to, *job.queries.values()}
    for name in job.queries:
        generation, facts = control.generation(name), control.query_facts(name) or {}
        if generation is not None:  # where it writes is known before it runs
            live |= {generation.location, *generation.new_sinks.values()}
        if facts.get("sink_path"):
            live.add(str(facts["sink_path"]))
    return sorted(live)


@contextmanager
def remembering_damage(repository: Repository, manifest: Manifest, by: Mapping[str, str]) -> Iterator[None]:
    """Record damage that only reading found, so that nobody counts on the savepoint."""
    try:
        yield
    except IntegrityError as error:
        try:
            repository.record_verification(
                manifest.job, manifest.savepoint, level="full", ok=False, findings=1, by=by
            )
        except StreambankError as failure:  # such as a replica that can only be read
            error.add_note(f"That could not be recorded: {failure}")
        raise


def lay_out_copy(
    repository: Repository,
    manifest: Manifest,
    target: Store,
    outputs: Mapping[str, str],
    *,
    by: Mapping[str, str],
    pace: Pace,
) -> MaterializeReport:
    """Lay a second query out beside the one that was saved, in a directory that nobody else restores into.

    Args:
        outputs: File sinks of the savepoint, each with a fresh directory: the query goes on there only by a
            log that reaches the savepoint's batch.
    """
    with remembering_damage(repository, manifest, by), restoring(exclusive=True) as owner:
        layout = materialize(repository, manifest, target, owner=owner, fork=True, pace=pace)
    if outputs:
        begin_outputs(look_at_sinks(repository, manifest, {}, outputs, mode="fork"))
    return layout
