"""How old savepoints, those in replicas, and drills are, of a job that promises nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.replicas.replicate import replicate_to
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sla.ages import Ages, ages_of_job
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import declare
from tests.support.sla.drilled_job import BEGUN, drilled

REPLICAS = '[jobs.flights.replicate]\nto = ["near", "far"]\n'


def taken(job: Job, folder: Path) -> Callable[[str], object]:
    """Take a savepoint; what brings it to a replica."""
    repository = Repository.open(open_store(job.repository), create=True)
    live = LiveCheckpoint(open_store(folder)).run(3)
    savepoint = take(TakeRequest(live.store, repository, "flights")).savepoint
    return lambda replica: replicate_to(repository, open_store, replica, [("flights", savepoint)])


def test_a_job_without_savepoints_and_drills_has_no_ages(tmp_path: Path) -> None:
    assert ages_of_job(declare(tmp_path, more=REPLICAS)) == Ages()


def test_savepoints_and_replicas_get_older_and_a_replica_without_one_has_no_age(tmp_path: Path) -> None:
    job = declare(tmp_path, more=REPLICAS)
    bring = taken(job, tmp_path / "live")
    near, far = job.replicate.to
    bring(near)
    now = utc_now() + timedelta(hours=2)

    found = ages_of_job(job, now=now)
    assert found.savepoint_s["main"] == pytest.approx(7200, abs=60)
    assert found.replica_s == {}, "the far one has nothing, so the age of what could be restored is not known"

    bring(far)
    assert ages_of_job(job, now=now).replica_s["main"] == found.savepoint_s["main"]
    assert ages_of_job(job, query="main", now=now).savepoint_s == found.savepoint_s
    with pytest.raises(InputError):
        ages_of_job(job, query="left")


def test_the_newest_drill_says_whether_it_passed_and_the_newest_that_passed_how_old_that_is(
    tmp_path: Path,
) -> None:
    job = declare(tmp_path)
    drilled(job, 0)
    after = BEGUN + timedelta(hours=1)
    assert ages_of_job(job, now=after) == Ages(drill_s=3600.0, drill_passed=True)
    drilled(job, 1, failed_step="restore", error="Savepoint b000041 is damaged.")
    assert ages_of_job(job, now=after) == Ages(drill_s=3600.0, drill_passed=False)


def test_a_job_of_which_no_drill_passed_has_no_age_of_one(tmp_path: Path) -> None:
    job = declare(tmp_path)
    drilled(job, 1, failed_step="restore", error="Savepoint b000041 is damaged.")
    assert ages_of_job(job) == Ages(drill_passed=False)


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    job = declare(tmp_path, more=REPLICAS)
    taken(job, tmp_path / "live")
    drilled(job, 0)
    for place in (job.repository, *job.replicate.to):
        folder = Path(place.removeprefix("file://"))
        if folder.exists():
            folder.rename(folder.with_suffix(".gone"))
        folder.write_text("not a directory", encoding="utf-8")
    found = ages_of_job(job)
    assert (found.savepoint_s, found.replica_s) == ({}, {})
