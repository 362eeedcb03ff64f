"""Removing what was left: what goes, what stays for which reason, and what a crash or a fault leaves."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streambank.cleaning import clean as clean_module
from streambank.cleaning.clean import CleanReport, clean_job, decide
from streambank.cleaning.left_directories import left_directories
from streambank.cleaning.left_directory import LeftDirectory
from streambank.compaction.job import compact_job
from streambank.control.control import JobControl
from streambank.control.marker import read_marker, write_marker
from streambank.control.rollbacks import RollbackNote
from streambank.core.errors import ConflictError, InputError, NotFoundError, StreambankError
from streambank.core.python310 import UTC
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.declaration.maintenance import GenerationsPolicy
from streambank.drills.copy_of_job import scratch_of
from streambank.drills.left import keep, mark, name_of
from streambank.recovery.reinstate import reinstate
from streambank.storage import local_path, open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work.staging import checkpoint_name
from streambank.work.target import NOTE
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.with_garbage import write_with_garbage
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import BY, ELSEWHERE, declare
from tests.support.jobs.left_behind import go_on, next_generation, repository_of, restored_on_a_service, save
from tests.support.refuses import refuses
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import (
    WRITES,
    Fault,
    FaultyStore,
    Kind,
    SimulatedCrash,
    removing_through,
)
from tests.support.storage.s3_servers import S3Server, moto_server

__all__ = ["moto_server"]  # a fixture

AT_ONCE = GenerationsPolicy(keep=1, keep_for_s=0.001)
"""Whatever nothing needs."""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def restored(folder: Path, *, generations: int = 2) -> tuple[Job, str]:
    """A job that has gone on after one restore or more, each time a little further; and its savepoint."""
    job = declare(folder)
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    savepoint = save(job)
    for batches in range(1, generations):
        next_generation(job, savepoint, sink="accept")
        for _ in range(batches):
            go_on(job)
    return job, savepoint


def clean(job: Job, policy: GenerationsPolicy | None = AT_ONCE, **how: object) -> CleanReport:
    later = utc_now() + timedelta(seconds=5)
    jobs = load_jobs(job.source).jobs
    given = {"now": later, "dry_run": False, "by": BY, "why": "space", "jobs": jobs} | how
    return clean_job(job, policy=policy, **given)  # type: ignore[arg-type]


def states(report: CleanReport) -> dict[str, str]:
    return {one.directory.location: one.state for one in report.decisions}


def kept(report: CleanReport, location: str) -> str:
    """Why a directory stays."""
    (one,) = (one for one in report.decisions if one.directory.location == location)
    assert one.state == "kept" and [*open_store(location).list()]
    return one.why


def test_generations_go_but_for_the_newest_and_the_rest_of_the_job_is_as_it_was(tmp_path: Path) -> None:
    job, savepoint = restored(tmp_path, generations=4)
    first, second, third, current = (job.checkpoint, *(f"{job.checkpoint}.g000{n}" for n in (2, 3, 4)))
    before = contents(open_store(job.repository)), contents(open_store(current))
    plan = clean(job, GenerationsPolicy(keep=2, keep_for_s=0.001), dry_run=True)
    assert states(plan) == {first: "removable", second: "removable", third: "kept"}
    assert plan.bytes == sum(one.directory.bytes for one in plan.having("removable")) > 0
    assert "newest 2 generations" in kept(plan, third)

    done = clean(job, GenerationsPolicy(keep=2, keep_for_s=0.001))
    assert states(done) == {first: "removed", second: "removed", third: "kept"}
    assert not Path(local_path(first) or "").exists() and not Path(local_path(second) or "").exists()
    assert (contents(open_store(job.repository)), contents(open_store(current))) == before
    assert [one.number for one in job.records().generations().all()] == [1, 2, 3, 4], "history stays"

    events = [one.data for one in job.records().events() if one.data["kind"] == "generation-removed"]
    assert [(one["generation"], one["location"], one["by"], one["why"]) for one in events] == [
        (1, first, BY, "space"), (2, second, BY, "space")
    ]  # fmt: skip
    assert events[0]["files"] > 0 and events[0]["bytes"] > 0
    assert states(clean(job, GenerationsPolicy(keep=2, keep_for_s=0.001))) == {third: "kept"}
    assert states(clean(job)) == {third: "removed"}
    next_generation(job, savepoint, sink="accept")
    generation = job.records().generation()
    assert generation is not None and generation.location == f"{job.checkpoint}.g0005"


def test_reinstating_a_removed_generation_is_refused_by_name(tmp_path: Path) -> None:
    job, savepoint = restored(tmp_path)
    assert states(clean(job)) == {job.checkpoint: "removed"}
    with refuses(NotFoundError, "generation-removed", match="generation 1 was removed at") as caught:
        reinstate(repository_of(job), job.name, savepoint, generation=1, control=job.records(), by=BY)
    assert "restore SAVEPOINT --job flights" in (caught.value.hint or "")


def test_what_is_younger_than_the_policy_keeps_it_stays(tmp_path: Path) -> None:
    job, _ = restored(tmp_path)
    week = GenerationsPolicy(keep=1, keep_for_s=7 * 86400)
    assert kept(clean(job, week), job.checkpoint) == "it stays for 7 d"
    assert states(clean(job, week, now=utc_now() + timedelta(days=8))) == {job.checkpoint: "removed"}


def test_nothing_goes_where_no_policy_says_so(tmp_path: Path) -> None:
    job, _ = restored(tmp_path)
    assert "no policy says that it goes" in kept(clean(job, None, dry_run=True), job.checkpoint)
    with refuses(InputError, "no-clean-policy"):
        clean(job, None)
    job = replace(job, generations=AT_ONCE)
    assert states(clean(job, None)) == {job.checkpoint: "removed"}


# What is needed stays, for each reason.


def test_the_way_back_stays(tmp_path: Path) -> None:
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    next_generation(job, save(job))
    assert "the way back" in kept(clean(job), job.checkpoint)
    go_on(job)
    assert states(clean(job)) == {job.checkpoint: "removed"}


def test_every_generation_that_could_be_reinstated_stays(tmp_path: Path) -> None:
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    savepoint = save(job)
    next_generation(job, savepoint, sink="accept")
    next_generation(job, savepoint, sink="accept")
    assert "the way back" in kept(clean(job), job.checkpoint)
    reinstate(repository_of(job), job.name, savepoint, generation=1, control=job.records(), by=BY)
    go_on(job)
    gone = {f"{job.checkpoint}.g0002": "removed", f"{job.checkpoint}.g0003": "removed"}
    assert states(clean(job)) == gone, "generation 1 counts again"


def test_without_a_savepoint_everything_stays(tmp_path: Path) -> None:
    job, savepoint = restored(tmp_path)
    repository_of(job).store.delete(f"savepoints/{job.name}/{savepoint}.json")
    assert "no savepoint" in kept(clean(job), job.checkpoint)


def test_a_generation_stays_from_which_a_damaged_savepoint_may_be_healed(tmp_path: Path) -> None:
    job, first = restored(tmp_path)
    store = repository_of(job).store
    for key in [info.path for info in store.list("objects")] + [info.path for info in store.list("packs")]:
        store.delete(key)
    assert f"savepoint {first}, which is not whole" in kept(clean(job), job.checkpoint)
    assert [one.needed_by for one in left_directories(job, glance=True).directories] == [""]


def test_while_an_operation_works_nothing_is_removed(tmp_path: Path) -> None:
    job, _ = restored(tmp_path)
    with job.records().operation("restore", by=BY):
        assert "the operation restore" in kept(clean(job, dry_run=True), job.checkpoint)
        with refuses(ConflictError, "operation-in-progress"):
            clean(job)
    assert states(clean(job)) == {job.checkpoint: "removed"}


def test_a_pending_rollback_keeps_generations_and_what_was_set_aside(tmp_path: Path) -> None:
    job, savepoint = restored(tmp_path)
    output, records = open_store(tmp_path / "output"), job.records()
    FileSinkWriter(output).write(0, [{"row": 1}])
    records.record_query(None, {"sink": f"FileSink[{output.uri}]", "query_id": "q"})
    into = f"{job.checkpoint}.g0003"
    RollbackNote(records, None, savepoint=savepoint, batch=3, location=into, by=BY).files([output])
    aside = f"_streambank_aside/{savepoint}-1"
    journal = {"job": job.name, "batch": 9, "begun_at": "2026-01-01T00:00:00Z"}
    output.write(f"{aside}/_rollback.json", json.dumps(journal).encode())
    output.write(f"{aside}/_done.json", b"{}")
    open_store(f"{job.checkpoint}.g0003").write(
        "metadata", json.dumps({NOTE: {"token": "t", "job": job.name, "owner": {}, "files": []}}).encode()
    )
    report = clean(job)
    for location in (job.checkpoint, f"{output.uri}/{aside}", f"{job.checkpoint}.g0003"):
        assert "rolled outputs back and did not finish" in kept(report, location)
    # Once a generation came of it, it is over.
    shutil.rmtree(local_path(f"{job.checkpoint}.g0003") or "")
    next_generation(job, savepoint, sink="accept")
    go_on(job)
    assert f"{output.uri}/{aside}" in {one.directory.location for one in clean(job).having("removed")}


@pytest.mark.parametrize("who", ["living", "elsewhere", "ended", "long-ago"])
def test_a_directory_stays_that_a_driver_may_still_write_into(tmp_path: Path, who: str) -> None:
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    here = JobControl(job.records().store, job.name, here=ELSEWHERE) if who != "living" else job.records()
    claim = here.lease.acquire([], ttl_s=0.1) if who != "living" else _claim_of_this_process(here)
    here.record_query(None, {"epoch": claim.epoch, "checkpoint": job.checkpoint, "query_id": "q"})
    if who == "ended":
        here.lease.claims.end(claim.epoch, "released", exit_code=0)
    else:
        here.lease.break_off(by=BY, why="it seems dead", even_live=True)
    next_generation(job, save(job))
    go_on(job)
    with job.records().lease.held("compact", by=BY):
        pass  # another epoch
    later = utc_now() + timedelta(days=2 if who == "long-ago" else 0, seconds=5)
    report = clean(job, now=later)
    if who in ("ended", "long-ago"):
        assert states(report) == {job.checkpoint: "removed"}
    else:
        said = "lost its lease and has not ended" if who == "living" else "has not said that it ended"
        assert said in kept(report, job.checkpoint)


def _claim_of_this_process(control: JobControl):  # type: ignore[no-untyped-def]
    from streambank.control.processes import this_process

    return control.lease.acquire([this_process("python")])


def test_the_directory_of_a_driver_that_holds_the_lease_stays(tmp_path: Path) -> None:
    job, _ = restored(tmp_path)
    records = job.records()
    claim = _claim_of_this_process(records)
    records.record_query(None, {"epoch": claim.epoch, "checkpoint": job.checkpoint, "query_id": "q"})
    assert f"the driver of epoch {claim.epoch}, which may still run" in kept(clean(job), job.checkpoint)
    claim.release()
    assert states(clean(job)) == {job.checkpoint: "removed"}


def test_a_directory_whose_name_alone_speaks_for_it_stays(tmp_path: Path) -> None:
    job, savepoint = restored(tmp_path)
    foreign = f"{job.checkpoint}.g0007"
    open_store(foreign).write("metadata", b'{"id": "x"}')
    half = {NOTE: {"token": "t", "job": "another", "owner": {}, "files": []}}
    open_store(f"{job.checkpoint}.g0008").write("metadata", json.dumps(half).encode())
    half[NOTE]["job"] = job.name
    open_store(f"{job.checkpoint}.g0009").write("metadata", json.dumps(half).encode())
    (tmp_path / "other").mkdir()
    other = declare(tmp_path / "other")
    write_with_garbage(open_store(other.checkpoint))
    stray = f"{job.checkpoint}.quarantine-x"
    compact_job(other, label="x", by=BY, quarantine=stray)
    report = clean(job)
    assert states(report) == {
        job.checkpoint: "removed", foreign: "kept", f"{job.checkpoint}.g0008": "kept",
        f"{job.checkpoint}.g0009": "removed", stray: "kept",
    }  # fmt: skip
    assert "only its name, or a record, says" in kept(report, foreign)
    assert "only its name, or a record, says" in kept(report, stray)
    assert savepoint


def test_a_directory_that_holds_something_alive_fails_and_the_others_go(tmp_path: Path) -> None:
    job, _ = restored(tmp_path, generations=3)
    inside = replace(job, replicate=replace(job.replicate, to=(f"{job.checkpoint}/copies",)))
    report = clean(inside)
    assert states(report) == {job.checkpoint: "failed", f"{job.checkpoint}.g0002": "removed"}
    (failed,) = report.having("failed")
    assert failed.error is not None and failed.error.code == "not-apart"
    assert open_store(job.checkpoint).exists("metadata")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    job, _ = restored(tmp_path)
    place = Path(local_path(job.checkpoint) or "")
    place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    (failed,) = clean(job).having("failed")
    assert failed.error is not None and failed.error.code == "not-a-directory"
    assert (tmp_path / "moved" / "metadata").exists()


def test_quarantines_staging_and_drills(tmp_path: Path) -> None:
    job = declare(tmp_path)
    write_with_garbage(open_store(job.checkpoint))
    query_id = json.loads(open_store(job.checkpoint).read("metadata"))["id"]
    job.records().record_query(None, {"query_id": query_id})
    save(job)
    quarantine = compact_job(job, label="x", by=BY)["main"].quarantine or ""
    ours, theirs = (f"{job.work_location(None)}/{checkpoint_name()}" for _ in range(2))
    open_store(ours).write("metadata", json.dumps({"id": query_id}).encode())
    open_store(theirs).write("commits/1", b"")
    old, young = utc_now() - timedelta(days=3), utc_now()
    drills = [
        scratch_of(job, name_of(at, token))
        for at, token in ((old, "a" * 6), (old, "b" * 6), (young, "c" * 6))
    ]
    for drill in drills:
        mark(drill, job.records())
        open_store(drill).write("checkpoint/main/metadata", b"{}")
    keep(drills[1])
    later = utc_now() + timedelta(days=2)
    report = clean(job, now=later)
    assert states(report) == {quarantine: "kept", ours: "removed", theirs: "kept", drills[0]: "removed"}
    assert "an undo" in kept(report, quarantine)
    go_on(job)
    assert states(clean(job, now=later)) == {quarantine: "removed", theirs: "kept"}
    assert not [*open_store(quarantine).list()] and [*open_store(drills[2]).list()]
    kinds = [
        one.data.get("what") for one in job.records().events() if one.data["kind"] == "directory-removed"
    ]
    assert sorted(map(str, kinds)) == ["drill", "quarantine", "staging"]


def test_a_copy_of_a_drill_stays_while_its_driver_may_run(tmp_path: Path) -> None:
    job, _ = restored(tmp_path)
    drill = scratch_of(job, name_of(utc_now() - timedelta(days=3), "a" * 6))
    mark(drill, job.records())
    open_store(drill).write("checkpoint/main/metadata", b"{}")
    from streambank.drills.copy_of_job import copy_of

    claim = _claim_of_this_process(copy_of(job, drill, {}).records())
    assert "the driver of the copy" in kept(clean(job), drill)
    claim.release()
    assert states(clean(job))[drill] == "removed"


def test_what_vanishes_meanwhile_is_no_error(tmp_path: Path) -> None:
    job, _ = restored(tmp_path)

    def vanished(location: str) -> Store:
        shutil.rmtree(local_path(location) or "")
        return open_store(location)

    assert states(clean(job, opener=vanished)) == {job.checkpoint: "gone"}


def test_whoever_loses_the_lock_removes_nothing_more(tmp_path: Path) -> None:
    job, _ = restored(tmp_path, generations=3)
    opened = []

    def broken(location: str) -> Store:
        job.records().operation_lock.break_off(by=BY, why="test", even_live=True)
        opened.append(location)
        return open_store(location)

    with refuses(ConflictError, "claim-lost"):
        clean(job, opener=broken)
    assert len(opened) == 1
    assert all(open_store(at).exists("metadata") for at in (job.checkpoint, f"{job.checkpoint}.g0002"))


# Faults.


def removal(job: Job, faulty: FaultyStore, root: Path) -> CleanReport:
    """A cleaning whose every call of the job's records and of what is removed passes through a store."""

    def opener(location: str) -> Store:
        return faulty.child(Path(local_path(location) or "").relative_to(root).as_posix())

    with removing_through(faulty):
        return clean(job, control=JobControl(opener(job.records().store.uri), job.name), opener=opener)


@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("crash-after", 6),
        pytest.param("crash-before", 1, marks=pytest.mark.storm),
        pytest.param("crash-after", 1, marks=pytest.mark.storm),
        pytest.param("error", 1, marks=pytest.mark.storm),
    ],
)
def test_a_crash_or_fault_at_every_call(tmp_path: Path, kind: Kind, every: int) -> None:
    work = tmp_path / "work"
    work.mkdir()
    job, first = restored(work)
    shutil.copytree(work, tmp_path / "saved")
    current = contents(open_store(f"{job.checkpoint}.g0002"))
    counting = FaultyStore(LocalStore(work))
    removal(job, counting, work)
    fired = 0
    calls = [
        (number, call)
        for number, call in enumerate(counting.calls, start=1)
        if kind == "crash-before" or call.operation in WRITES
    ]
    for number, call in calls[::every]:
        shutil.rmtree(work)
        shutil.copytree(tmp_path / "saved", work)
        faulty = FaultyStore(LocalStore(work), Fault(kind, call=number))
        with suppress(SimulatedCrash, StreambankError):
            removal(job, faulty, work)
        faulty.assert_fired()
        fired += 1
        assert contents(open_store(f"{job.checkpoint}.g0002")) == current, f"{call} cost the query a file"
        records = job.records()
        records.operation_lock.break_off(by=BY, why="it died", even_live=True)
        there = contents(open_store(job.checkpoint))
        if "metadata" not in there or len(there) < 8:
            with pytest.raises(StreambankError) as caught:
                reinstate(repository_of(job), job.name, first, generation=1, control=records, by=BY)
            assert caught.value.code == "generation-removed", "half a generation never counts again"
        assert set(states(clean(job)).values()) <= {"removed", "gone"}
        assert not [*open_store(job.checkpoint).list()]
    assert fired > (40 if kind == "crash-before" else 12) / every


def test_one_that_fails_does_not_keep_the_others(tmp_path: Path) -> None:
    job, _ = restored(tmp_path, generations=3)

    faulty = FaultyStore(MemoryStore(), Fault("denied", operations=frozenset({"delete"})))
    with removing_through(faulty):
        report = clean(job)
    faulty.assert_fired()
    assert states(report) == {job.checkpoint: "failed", f"{job.checkpoint}.g0002": "removed"}
    assert states(clean(job)) == {job.checkpoint: "removed"}, "the next run goes on"


@pytest.mark.server
@pytest.mark.storm
def test_on_s3(tmp_path: Path, moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    job = restored_on_a_service(moto_server.use(monkeypatch).location(), tmp_path)
    assert "the way back" in kept(clean(job), job.checkpoint)
    go_on(job)
    assert states(clean(job)) == {job.checkpoint: "removed"}
    assert not [*open_store(job.checkpoint).list()]
    assert open_store(f"{job.checkpoint}.g0002").exists("metadata")


def test_the_policy_alone_decides_by_age_and_number() -> None:
    now = datetime(2026, 1, 20, tzinfo=UTC)

    def left(number: int, day: int, need: str = "") -> LeftDirectory:
        since = datetime(2026, 1, day, tzinfo=UTC)
        return LeftDirectory("generation", "main", f"g{number}", since, 1, 1, True, need, "rm", True, number)

    given = [left(1, 1), left(2, 2, "an undo"), left(3, 3), left(4, 19)]

    def found(count: int, days: float) -> list[str]:
        decisions = decide(given, GenerationsPolicy(count, days * 86400), now)
        return [one.directory.location for one in decisions if one.state == "removable"]

    assert found(1, 0.5) == ["g1", "g3", "g4"]
    assert found(2, 0.5) == ["g1", "g3"]
    assert found(3, 0.5) == ["g1"]
    assert found(1, 7) == ["g1", "g3"]
    assert found(4, 0.5) == ["g1"], "one that is needed counts as one of those that stay"


def test_the_command_plans_first(tmp_path: Path) -> None:
    job, _ = restored(tmp_path)
    jobs = ("--jobs", tmp_path / "streaming_jobs.toml")
    assert "declares no generations.keep" in succeed("job", "clean", "flights", *jobs).out
    plan = succeed("job", "clean", "flights", *jobs, "--keep", 1, "--keep-for", "1ms")
    assert "1 directory" in plan.out and "Nothing was changed" in plan.out
    answer = streambank("job", "clean", "flights", *jobs, "--execute")
    assert answer.code == 2 and "give --keep 2" in answer.err
    done = succeed(
        "job", "clean", "flights", *jobs, "--keep", 1, "--keep-for", "1ms", "--execute", "--json"
    ).document
    assert (done["removed"], done["failed"], done["dry_run"]) == (1, 0, False)
    assert done["policy"] == {"keep": 1, "keep_for_s": 0.001}
    assert "has left nothing" in succeed("job", "clean", "flights", *jobs).out
    assert not Path(local_path(job.checkpoint) or "").exists()


def test_a_directory_that_was_written_to_since_it_was_left_stays(tmp_path: Path) -> None:
    """Somebody has started the old program on the declared path again, without Streambank."""
    job, _ = restored(tmp_path)
    later = utc_now() + timedelta(hours=1)
    planned = Path(local_path(job.checkpoint) or "") / "offsets/3"
    planned.write_text("v1")
    os.utime(planned, (later.timestamp(), later.timestamp()))
    report = clean(job, now=later + timedelta(days=100))
    assert "whatever has written to it at" in kept(report, job.checkpoint)


def test_what_was_written_to_lately_is_not_old(tmp_path: Path) -> None:
    """A minute after it was left: by the clocks that may be the last breath of its own driver."""
    job, _ = restored(tmp_path)
    later = utc_now() + timedelta(minutes=1)
    planned = Path(local_path(job.checkpoint) or "") / "offsets/3"
    planned.write_text("v1")
    os.utime(planned, (later.timestamp(), later.timestamp()))
    policy = GenerationsPolicy(keep=1, keep_for_s=3600.0)
    assert "stays for" in kept(clean(job, policy, now=later + timedelta(minutes=59)), job.checkpoint)
    assert states(clean(job, policy, now=later + timedelta(minutes=61))) == {job.checkpoint: "removed"}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_generation_that_another_job_has_declared_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    job, _ = restored(tmp_path, generations=3)
    theirs = f"{job.checkpoint}.g0002"

    def declared_by_another() -> None:
        write_marker(theirs, replace(marker, job="other"))

    marker = read_marker(job.checkpoint) or pytest.fail("the job has no marker")
    if when == "before":
        declared_by_another()
    else:
        found = left_directories

        def late(*args: Any, **options: Any) -> Any:
            left = found(*args, **options)
            declared_by_another()
            return left

        monkeypatch.setattr(clean_module, "left_directories", late)
    report = clean(job)
    if when == "before":
        assert kept(report, theirs) == "needed by job other, whose checkpoint it is"
    else:
        (failed,) = report.having("failed")
        assert failed.error is not None and failed.error.code == "not-apart"
        assert "in use by job other" in failed.error.message
    assert [*open_store(theirs).list()] and states(report)[job.checkpoint] == "removed"


@pytest.mark.parametrize("inside", ["other/offsets/0", "team/other/commits/0", "out/_spark_metadata/0"])
def test_what_lies_deep_inside_of_somebody_else_keeps_a_generation(tmp_path: Path, inside: str) -> None:
    job, _ = restored(tmp_path)
    open_store(job.checkpoint).write(inside, b"v1")
    (failed,) = clean(job).having("failed")
    assert failed.error is not None and failed.error.code == "not-apart"
    assert inside.rpartition("/")[0].rpartition("/")[0] in failed.error.message
    assert open_store(job.checkpoint).exists("metadata")
