"""A job that has worked, and whose repository is taken away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streambank.control.marker import renew_marker
from streambank.core.errors import RefusedError, StreambankError
from streambank.core.names import MAIN
from streambank.declaration.declaration import Job
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses

SINK = "ForeachBatchSink"


def in_repository(folder: Path) -> Job:
    """A job whose records are inside its repository: what takes one takes both."""
    return declare(folder, more='control = "repository/jobs"')


def worked_in_repository(folder: Path) -> Job:
    """Such a job, in which a driver has worked."""
    job = in_repository(folder)
    worked(job)
    return job


def worked(job: Job, *, location: str | None = None) -> LiveCheckpoint:
    """Let a driver have worked in the job's current generation."""
    control = job.records()
    generation = control.generations().ensure_first(job.checkpoint, by=BY)
    checkpoint = LiveCheckpoint(open_store(location or generation.location), retain=20).run(3)
    facts = {"generation": generation.number, "query_id": checkpoint.query_id, "sink": SINK}
    control.record_query(None, facts)
    why = renew_marker(
        job.checkpoint,
        job=job.name,
        query=MAIN,
        generation=generation,
        control=control,
        by=BY,
        repository=job.repository,
        facts=facts,
    )
    assert why is None
    return checkpoint


def move_on(job: Job) -> str:
    """Do what a restore does to the job's records; where the next generation is."""
    records = job.records()
    generations = records.generations()
    with records.operation("restore", by=BY) as operation:
        proposed = generations.propose(taken=lambda location: False)
        generations.switch(proposed, operation=operation)
    worked(job)
    return proposed.location


def lose_repository(folder: Path) -> None:
    """Leave an empty directory in its place, as where a disk is not mounted."""
    (folder / "repository").rename(folder / "repository.gone")
    (folder / "repository").mkdir()


def refused(act: Callable[[], object], code: str = "repository-lost") -> StreambankError:
    with refuses(RefusedError, code) as caught:
        act()
    return caught.value
