"""One place by two names of its service: what a job is, and what it keeps, is so by each of them.

A jobs file says `s3://` where it once said `s3a://`; records and savepoints have the name of before.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.cleaning.clean import clean_job
from streambank.cleaning.left_directories import left_directories
from streambank.cleaning.needs import healing_savepoint
from streambank.control.generations import is_generation_of
from streambank.control.place import MOVING
from streambank.control.processes import this_process
from streambank.control.records import encode_json
from streambank.core.errors import InputError, RefusedError
from streambank.core.names import QueryRef
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.job.import_copy import refuse_lost
from streambank.job.move_records import move_records
from streambank.job.savepoint import owners_of
from streambank.replicas.repair import repair
from streambank.repository.repository import Repository
from streambank.savepoint.import_copy import check_copy
from streambank.sites.forks import left_after, why_left
from streambank.sites.records import SiteRecord
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY
from tests.support.jobs.left_behind import go_on, next_generation, save
from tests.support.jobs.lost_repository import worked
from tests.support.refuses import refuses
from tests.support.storage.s3_servers import S3Server

NAMES = [("s3a", "s3"), ("s3", "s3a")]


def declared(folder: Path, place: str, name: str) -> Job:
    folder.mkdir()
    (folder / "app.py").write_text("")
    (folder / "jobs.toml").write_text(
        f'repository = "{place}/{name}"\n'
        f'[jobs.flights]\napplication = "app.py"\ncheckpoint = "{place}/checkpoint"\n'
    )
    return load_jobs(folder / "jobs.toml").job("flights")


@pytest.fixture(params=NAMES, ids=lambda names: f"{names[0]}, then {names[1]}")
def both(
    request: pytest.FixtureRequest, moto_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Job, Job]:
    """A job as it was declared, and as it is now."""
    before, now = request.param
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # others stage work in the usual one
    place = moto_server.use(monkeypatch).location(before)
    named = f"{now}{place.removeprefix(before)}"
    return declared(tmp_path / "before", place, "r"), declared(tmp_path / "now", named, "r")


def test_what_a_policy_keeps_does_not_go_by_its_other_name(both: tuple[Job, Job]) -> None:
    was, job = both
    LiveCheckpoint(open_store(was.checkpoint)).run(2)
    next_generation(was, save(was), sink="accept")
    go_on(was)
    now, jobs = utc_now() + timedelta(days=5), load_jobs(job.source).jobs
    two = GenerationsPolicy(keep=2, keep_for_s=0.001)
    report = clean_job(job, jobs=jobs, policy=two, now=now, dry_run=False, by=BY)
    assert [(one.directory.location, one.state) for one in report.decisions] == [(was.checkpoint, "kept")]
    assert open_store(job.checkpoint).exists("metadata")
    one = GenerationsPolicy(keep=1, keep_for_s=0.001)
    report = clean_job(job, jobs=jobs, policy=one, now=now, dry_run=False, by=BY)
    assert [(one.directory.location, one.state) for one in report.decisions] == [(was.checkpoint, "removed")]


def test_what_may_still_be_written_or_healed_is_needed_by_its_other_name(both: tuple[Job, Job]) -> None:
    was, job = both
    LiveCheckpoint(open_store(was.checkpoint)).run(2)
    saved = save(was)
    next_generation(was, saved, sink="accept")
    records = was.records()
    records.lease.acquire([this_process("python")])
    records.record_query(None, {"checkpoint": job.checkpoint, "epoch": 1})
    go_on(was)
    (left,) = left_directories(job).directories
    assert left.needed_by.startswith("the driver of epoch 1, which")
    repository = open_store(was.repository)
    assert healing_savepoint(job.repository, "flights", job.checkpoint) == ""
    for info in [*repository.list("objects"), *repository.list("packs"), *repository.list("index")]:
        repository.delete(info.path)
    assert healing_savepoint(job.repository, "flights", job.checkpoint) == saved


def test_a_take_finds_whose_it_is_by_its_other_name(both: tuple[Job, Job]) -> None:
    was, job = both
    was.records().generations().ensure_first(was.checkpoint, by=BY)
    for place in (was.checkpoint, job.checkpoint):
        assert owners_of([was], place) == [(was, "main")]
        assert owners_of([job], place) == [(job, "main")]


@pytest.mark.parametrize(("was", "now"), [("s3a://b/ck", "s3://b/ck"), ("hdfs://nn:8020/ck", "hdfs://NN/ck")])
def test_a_place_is_that_of_the_job_by_its_other_name(was: str, now: str) -> None:
    assert is_generation_of(now, was) and is_generation_of(now, f"{was}.g0003")
    assert not is_generation_of(now, f"{was}.g3") and not is_generation_of(now, f"{was}x.g0003")


def test_a_line_that_was_left_is_so_by_its_other_name() -> None:
    went_on = SiteRecord(
        2, "active", "standby", "primary", False, BY, "", utc_now(), {"main": "b000005-0123456789ab"},
        left={"main": "s3a://b/ck"},
    )  # fmt: skip
    left = left_after([went_on], "main")
    assert why_left(left, "s3://b/ck", 6) and why_left(left, "s3n://b/ck", 6)
    assert not why_left(left, "s3://b/ck", 5) and not why_left(left, "s3://b/other", 6)


def test_what_is_not_to_be_itself_is_so_by_its_other_name(both: tuple[Job, Job]) -> None:
    was, job = both
    with refuses(InputError, "not-a-copy"):
        check_copy(open_store(job.checkpoint), None, live=was.checkpoint)
    repository = was.open_repository(create=True)
    with refuses(InputError, "same-repository"):
        repair(repository, [Repository.open(open_store(job.repository))], [], by=BY)


def test_lost_records_are_missed_by_the_other_name_of_the_repository(both: tuple[Job, Job]) -> None:
    was, job = both
    worked(was)
    records = was.records().store
    for info in list(records.list()):
        records.delete(info.path)
    for repository in (was.repository, job.repository):
        for checkpoint in (was.checkpoint, job.checkpoint):
            with refuses(RefusedError, "repository-lost"):
                refuse_lost(was, QueryRef.parse("flights"), open_store(repository), open_store(checkpoint))


def test_a_move_of_records_that_broke_off_goes_on_by_the_other_name(both: tuple[Job, Job]) -> None:
    was, job = both
    worked(was)
    to = f"{job.repository}-records"
    begun = open_store(to).child(job.name)
    begun.write(MOVING, encode_json({"at": to_json_time(utc_now()), "from": was.records().store.uri}))
    begun.write("desired/0000000001.json", b"half of it")
    moved = move_records(job, by=BY, to=to)
    assert moved.target == begun.uri and not begun.exists(MOVING) and begun.names("generation/main")
