"""How far a declared job is in event time: by its current generation, and for all of its queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.control.progress import ProgressWriter
from streambank.declaration.declaration import Job
from streambank.job.watermarks import EventTime, event_time_of
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare


def checkpoint(location: str) -> LiveCheckpoint:
    return LiveCheckpoint(open_store(location))


def test_a_job_that_was_never_started_is_nowhere(folder: Path) -> None:
    job = declare(folder)

    assert event_time_of(job, job.records()) == EventTime()


def test_it_is_as_far_as_its_newest_committed_batch(folder: Path) -> None:
    job = declare(folder)
    checkpoint(job.checkpoint).run(4).plan()

    assert event_time_of(job, job.records()) == EventTime(3, 3000)


def test_after_a_restore_the_restored_generation_counts_whatever_was_recorded_before(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    checkpoint(job.checkpoint).run(9)
    note_progress(records, 1, {"watermark": "1970-01-01T00:00:08.000Z"}, batch=8)
    generations = records.generations(None)
    generations.ensure_first(job.checkpoint, by=BY)
    with records.operation("restore", by=BY) as held:
        restored = generations.propose(taken=lambda location: False)
        checkpoint(restored.location).run(3)
        generations.switch(restored, operation=held)

    assert event_time_of(job, records) == EventTime(2, 2000)


def test_of_several_queries_the_slowest_counts(folder: Path) -> None:
    job = declare(folder, more='queries = ["raw", "daily"]\n')
    checkpoint(job.queries["raw"]).run(9)

    assert event_time_of(job, job.records()) == EventTime()
    checkpoint(job.queries["daily"]).run(1)
    assert event_time_of(job, job.records()) == EventTime(0, None)
    checkpoint(job.queries["daily"]).run(3)
    assert event_time_of(job, job.records(), "raw") == EventTime(8, 8000)


def note_progress(records: JobControl, epoch: int, event_time: dict[str, str] | None, batch: int = 0) -> None:
    """A record as the runner leaves it: Spark leaves an empty `eventTime` out."""
    writer = ProgressWriter(records.store, None, epoch=epoch)
    said = {} if event_time is None else {"eventTime": event_time}
    writer.add({"runId": "r", "batchId": batch, "durationMs": {"addBatch": 1}, **said})
    writer.flush()


@pytest.fixture
def running(folder: Path) -> Job:
    """A job with a first batch, driven by this process."""
    job = declare(folder)
    checkpoint(job.checkpoint).run(1)
    job.records().lease.acquire([this_process("python")])
    return job


def test_a_query_without_a_watermark_is_known_by_what_its_driver_says(running: Job) -> None:
    note_progress(running.records(), 1, None)

    assert event_time_of(running, running.records()).without == "main"


@pytest.mark.parametrize(
    ("epoch", "event_time"),
    [
        (1, {"watermark": "1970-01-01T00:00:00.000Z"}),  # none yet
        (7, None),  # said by another driver: the application may be another one now
    ],
)
def test_a_query_that_may_get_one_is_not_given_up(
    running: Job, epoch: int, event_time: dict[str, str] | None
) -> None:
    note_progress(running.records(), epoch, event_time)

    assert event_time_of(running, running.records()) == EventTime(0, None)


def test_nothing_is_concluded_where_no_driver_lives(running: Job) -> None:
    note_progress(running.records(), 1, None)
    running.records().lease.claims.end(1, "released", exit_code=0)

    assert event_time_of(running, running.records()).without is None
