"""A checkpoint that is declared by another name of its service than the one that its records have."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.cleaning.clean import CleanReport, clean_job
from streambank.control.control import JobControl
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.driver.prepare import prepare_launch
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, ELSEWHERE
from tests.support.jobs.left_behind import go_on, next_generation, save
from tests.support.storage.s3_servers import S3Server, moto_server

__all__ = ["moto_server"]


@pytest.fixture
def job(tmp_path: Path, moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Job:
    moto_server.use(monkeypatch)
    (tmp_path / "app.py").write_text("")
    file = tmp_path / "jobs.toml"
    file.write_text(
        f'repository = "{tmp_path}/repository"\n[jobs.flights]\napplication = "app.py"\n'
        f'checkpoint = "{moto_server.location()}/ck"\n'
    )
    job = load_jobs(file).job("flights")
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    prepare_launch(job, job.records(), by=BY)
    return job


def by_its_other_name(job: Job) -> Job:
    """Declared as `s3a`, as Spark calls it."""
    place = job.checkpoint.replace("s3://", "s3a://")
    assert place != job.checkpoint
    return replace(job, checkpoint=place, queries={"main": place})


def clean(job: Job) -> CleanReport:
    policy, now = GenerationsPolicy(keep=1, keep_for_s=0.001), utc_now() + timedelta(hours=2)
    return clean_job(job, jobs={job.name: job}, policy=policy, now=now, dry_run=False, by=BY)


def test_a_directory_stays_that_a_driver_may_still_write_into(job: Job) -> None:
    records = JobControl(job.records().store, job.name, here=ELSEWHERE)
    claim = records.lease.acquire([], ttl_s=0.1)
    records.record_query(None, {"epoch": claim.epoch, "checkpoint": job.checkpoint, "query_id": "q"})
    records.lease.break_off(by=BY, why="it seems dead", even_live=True)
    next_generation(job, save(job))
    go_on(job)
    other = by_its_other_name(job)
    assert other.records().generations().ensure_first(other.checkpoint, by=BY).number == 2, "it starts"
    decisions = clean(other).decisions
    assert open_store(job.checkpoint).exists("metadata")
    assert [one.state for one in decisions] == ["kept"]


def test_each_directory_is_named_once(job: Job) -> None:
    """A second time it would be one that its name alone speaks for, with the command that removes it."""
    saved = save(job)
    for _ in range(2):
        next_generation(job, saved, sink="accept")
    other = by_its_other_name(job)
    found = {one.directory.location: one.why for one in clean(other).decisions}
    assert list(found) == [job.checkpoint, f"{job.checkpoint}.g0002"]
    assert all("the way back" in why for why in found.values())
