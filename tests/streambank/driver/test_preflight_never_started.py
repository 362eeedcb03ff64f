"""A job that was never started has savepoints, and the disk that they are on may be lost as any other's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.marker import read_marker
from streambank.control.processes import this_process
from streambank.declaration.declaration import Job
from streambank.driver.prepare import prepare_launch
from streambank.job.savepoint import savepoint_job
from streambank.job.status import job_status
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.lost_repository import refused


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A query that runs by other means, with a declaration."""
    found = declare(tmp_path)
    live = LiveCheckpoint(open_store(found.checkpoint))
    for _ in range(3):
        live.plan()
        live.commit()
    return found


def lose(job: Job, *, records: bool) -> Path:
    """The disk of the repository is gone, and its mount point is empty; with that of the records."""
    folder = Path(job.repository.removeprefix("file://"))
    for place in [folder, *([folder.with_name(f"{folder.name}.control")] if records else [])]:
        shutil.rmtree(place)
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("records", [False, True])
def test_a_take_makes_no_new_repository_in_the_place_of_one_that_is_gone(job: Job, records: bool) -> None:
    savepoint_job(job, by=BY)
    folder = lose(job, records=records)
    refused(lambda: savepoint_job(job, by=BY))
    assert list(folder.iterdir()) == []
    assert savepoint_job(job, by=BY, new_repository=True).savepoints
    assert savepoint_job(job, by=BY).savepoints, "from then on that one counts"


def test_the_marker_says_what_is_known(job: Job) -> None:
    savepoint_job(job, by=BY)
    marker = read_marker(job.checkpoint)
    assert marker is not None and not marker.has_worked
    assert (marker.job, marker.generation, marker.location) == (job.name, 1, open_store(job.checkpoint).uri)
    assert marker.query_id is None and marker.repository_id is not None


def test_it_is_still_a_job_that_was_never_started(job: Job) -> None:
    savepoint_job(job, by=BY)
    assert job_status(job).state == "never-started"
    assert job.records().generation() is None
    shutil.rmtree(f"{job.repository}.control".removeprefix("file://"))
    assert job_status(job).state == "never-started", "no records that could be lost were there"
    spec = prepare_launch(job, job.records(), by=BY)
    assert spec.queries["main"].generation == 1
    marker = read_marker(job.checkpoint)
    assert marker is not None and not marker.has_worked, "a driver that works there says so"


def test_another_name_is_no_other_job(job: Job) -> None:
    """As long as nothing has run by the first one: who adopts a query may find a better name for it."""
    savepoint_job(job, by=BY)
    renamed = replace(job, name="renamed")
    assert job_status(renamed).state == "never-started"
    prepare_launch(renamed, renamed.records(), by=BY)
    savepoint_job(renamed, by=BY)
    marker = read_marker(job.checkpoint)
    assert marker is not None and marker.job == "renamed"


@pytest.mark.parametrize("what", ["name", "control"])
def test_where_the_first_driver_has_just_begun_no_second_one_comes(job: Job, what: str) -> None:
    """It has the lease; the marker says that it works there only once Spark has started its query."""
    savepoint_job(job, by=BY)
    control = f"{job.repository}-elsewhere"
    other = replace(job, name="renamed") if what == "name" else replace(job, control=control)
    claim = job.records().lease.acquire([this_process("python")], beat_s=1, ttl_s=9)
    error = refused(lambda: prepare_launch(other, other.records(), by=BY), "checkpoint-of-another-job")
    assert "is held by process" in error.message
    prepare_launch(job, job.records(), by=BY)  # the job itself is asked by its lease
    claim.release()
    assert prepare_launch(other, other.records(), by=BY).queries["main"].generation == 1


def test_a_restore_does_not_speak_of_lost_records(job: Job) -> None:
    taken = savepoint_job(job, by=BY).savepoints["main"].savepoint
    plan = plan_restore(
        RestoreRequest(
            job.open_repository(),
            taken,
            job=job.name,
            generation=job.records(),
            checkpoint=job.checkpoint,
            sink="accept",
            by=BY,
        )
    )
    assert not any("records" in one for one in plan.warnings)
    assert plan.generation == 2 and plan.location.endswith(".g0002")
