"""The checkpoints of declared jobs: held while no driver lives, beside it otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.compaction.job import compact_job, purge_job, undo_job
from streambank.compaction.quarantine import PURGING_KEY, Quarantine
from streambank.control.processes import this_process
from streambank.core.errors import ConflictError, InputError, NotFoundError, RefusedError, StorageError
from streambank.core.verb_options import CompactOptions
from streambank.declaration.declaration import Job
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.support.checkpoint.with_garbage import closure, write_with_garbage
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses
from tests.support.storage.contents import contents

PLAN = CompactOptions(plan_only=True)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose checkpoint has garbage."""
    job = declare(tmp_path)
    write_with_garbage(open_store(job.checkpoint))
    return job


def test_while_no_driver_lives_everything_dead_goes_and_comes_back(job: Job) -> None:
    checkpoint = open_store(job.checkpoint)
    before, needed = contents(checkpoint), closure(checkpoint)
    planned = compact_job(job, PLAN, label="x", by=BY)["main"]
    assert contents(checkpoint) == before and job.records().lease.view() is None

    done = compact_job(job, label="x", by=BY, why="too many files")["main"]

    assert (done.mode, done.job, done.files) == ("stopped", "flights", planned.files)
    assert closure(checkpoint) == needed
    assert done.quarantine == f"{job.checkpoint}.quarantine-x"
    view = job.records().lease.view()
    assert view is not None and view.free, "the lease was held, and is free again"
    event = job.records().last_event("compacted")
    assert event is not None and event["quarantine"] == done.quarantine and event["files"] == len(done.files)
    again = compact_job(job, label="x", by=BY)["main"]
    assert again.already_done
    back = undo_job(job, done.quarantine or "", by=BY)
    assert back.files == len(done.files)
    assert contents(checkpoint) == before
    assert job.records().last_event("compaction-undone")


def test_no_driver_can_start_meanwhile(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(*args: object, **kwargs: object) -> None:
        view = job.records().lease.view()
        with pytest.raises(RefusedError):
            job.records().lease.acquire([this_process("driver")])
        with pytest.raises(ConflictError), job.records().operation("start", by=BY):
            pass
        seen.append(view)

    monkeypatch.setattr("streambank.compaction.compact.check_still", look)
    compact_job(job, label="x", by=BY)
    assert seen and seen[0] is not None and not seen[0].free


def test_a_lost_lease_ends_it(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def take_away(*args: object, **kwargs: object) -> None:
        job.records().lease.break_off(by=BY, why="a test", even_live=True)

    monkeypatch.setattr("streambank.compaction.compact.check_still", take_away)
    before = contents(open_store(job.checkpoint))
    with refuses(ConflictError, "claim-lost"):
        compact_job(job, label="x", by=BY)
    assert contents(open_store(job.checkpoint)) == before


def test_beside_a_driver_only_unfinished_writes_go(job: Job) -> None:
    before = contents(open_store(job.checkpoint))
    driver = job.records().lease.acquire([this_process("driver")])
    try:
        assert compact_job(job, PLAN, label="x", by=BY)["main"].mode == "running"
        asked = compact_job(job, CompactOptions(stopped=True, plan_only=True), label="x", by=BY)["main"]
        assert asked.mode == "stopped" and [one.code for one in asked.refusals] == ["lease-held"]
        done = compact_job(job, label="x", by=BY)["main"]
        assert (done.mode, done.files) == ("running", ())
        with pytest.raises(RefusedError, match="is held by"):
            compact_job(job, CompactOptions(stopped=True), label="x", by=BY)
        assert contents(open_store(job.checkpoint)) == before
    finally:
        driver.release()
    stopped = compact_job(job, label="x", by=BY)["main"]
    driver = job.records().lease.acquire([this_process("driver")])
    try:
        with refuses(RefusedError, "lease-held"):
            undo_job(job, stopped.quarantine or "", by=BY)
    finally:
        driver.release()


def test_another_operation_comes_first(job: Job) -> None:
    with job.records().operation("restore", by=BY), pytest.raises(ConflictError) as error:
        compact_job(job, label="x", by=BY)
    assert error.value.code == "operation-in-progress"


def test_the_generation_that_counts_is_compacted(job: Job) -> None:
    records = job.records()
    generations = records.generations()
    generations.ensure_first(job.checkpoint, by=BY)
    with records.operation("restore", by=BY) as operation:
        generations.switch(generations.propose(taken=lambda place: False), operation=operation)
    write_with_garbage(open_store(f"{job.checkpoint}.g0002"))
    done = compact_job(job, label="x", by=BY)["main"]
    assert done.checkpoint == f"{job.checkpoint}.g0002"


def test_a_job_that_was_never_started_has_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="never started"):
        compact_job(declare(tmp_path), label="x", by=BY)


def test_several_queries_have_a_quarantine_each(tmp_path: Path) -> None:
    job = declare(tmp_path, more='queries = ["left", "right"]\n')
    for location in job.queries.values():
        write_with_garbage(open_store(location))
    with pytest.raises(InputError, match="its own quarantine"):
        compact_job(job, label="x", by=BY, quarantine=str(tmp_path / "q"))
    with pytest.raises(InputError, match="no query"):
        compact_job(job, label="x", by=BY, query="middle")
    done = compact_job(job, label="x", by=BY)
    assert {name: report.job for name, report in done.items()} == {
        "left": "flights/left",
        "right": "flights/right",
    }
    assert len({report.quarantine for report in done.values()}) == 2


def test_a_quarantine_of_another_checkpoint_is_not_brought_back(job: Job, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = declare(tmp_path / "other")
    write_with_garbage(open_store(other.checkpoint))
    done = compact_job(other, label="x", by=BY)["main"]
    with pytest.raises(InputError, match="not a current checkpoint"):
        undo_job(job, done.quarantine or "", by=BY)
    with pytest.raises(NotFoundError, match="no quarantine"):
        undo_job(job, LocalStore(tmp_path / "nothing").uri, by=BY)


def test_a_checkpoint_is_the_same_by_whichever_way_it_is_declared(job: Job, tmp_path: Path) -> None:
    """Another machine reaches the same disk by a link."""
    before = contents(open_store(job.checkpoint))
    (tmp_path / "link").symlink_to(tmp_path / "checkpoints")
    done = compact_job(job, label="x", by=BY)["main"]
    link = open_store(tmp_path / "link" / job.checkpoint.rpartition("/")[2]).uri
    linked = replace(job, checkpoint=link, queries={"main": link})
    assert compact_job(linked, label="x", quarantine=done.quarantine, by=BY)["main"].already_done
    assert undo_job(linked, done.quarantine or "", by=BY).files == len(done.files)
    assert undo_job(job, done.quarantine or "", by=BY).already_done
    assert contents(open_store(job.checkpoint)) == before
    again = compact_job(job, label="y", by=BY)["main"]
    assert purge_job(linked, again.quarantine or "", by=BY).files == len(again.files)


def test_a_quarantine_of_an_earlier_generation_is_purged_and_one_of_another_job_is_not(
    job: Job, tmp_path: Path
) -> None:
    done = compact_job(job, label="x", by=BY)["main"]
    assert done.quarantine is not None
    records = job.records()
    generations = records.generations()
    generations.ensure_first(job.checkpoint, by=BY)
    with records.operation("restore", by=BY) as operation:
        generations.switch(generations.propose(taken=lambda location: False), operation=operation)
    (tmp_path / "other").mkdir()
    other = declare(tmp_path / "other")
    with pytest.raises(InputError, match="not a checkpoint of job"):
        purge_job(other, done.quarantine, by=BY)
    with records.operation("restore", by=BY), pytest.raises(ConflictError):
        purge_job(job, done.quarantine, by=BY)
    gone = purge_job(job, done.quarantine, by=BY)
    assert (gone.checkpoint, gone.files, gone.already_done) == (job.checkpoint, len(done.files), False)
    again = purge_job(job, done.quarantine, by=BY)
    assert (again.checkpoint, again.files, again.already_done) == (job.checkpoint, len(done.files), True)


def test_a_purge_that_broke_off_is_ended_with_its_job_known(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = compact_job(job, label="x", by=BY)["main"]
    assert done.quarantine is not None
    place = open_store(done.quarantine)
    purging = Quarantine(place)

    class Cut(LocalStore):
        def delete(self, key: str) -> None:
            if key == PURGING_KEY:
                raise StorageError("cut off", code="test", hint="")
            super().delete(key)

    def opened(location: str) -> Store:
        return Cut(location.removeprefix("file://"), fsync=False)

    with monkeypatch.context() as patch, pytest.raises(StorageError):
        patch.setattr("streambank.compaction.job.open_store", opened)
        purge_job(job, done.quarantine, by=BY)
    assert purging.record() is None and purging.is_purging
    assert purge_job(job, done.quarantine, by=BY).checkpoint is None
    event = job.records().last_event("quarantine-purged")
    assert event is not None and event["checkpoint"] == job.checkpoint
    assert not contents(place)
