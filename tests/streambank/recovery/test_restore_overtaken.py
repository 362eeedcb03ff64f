"""Two restores at once, and one that stood still while another took its place: it changes nothing there."""

from __future__ import annotations

import json

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import ConflictError, RefusedError, StorageError, StreambankError
from streambank.recovery.report import RestoreReport
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.savepoint import materialize
from streambank.storage.store import FileInfo, Store
from streambank.work.executor import Pace
from streambank.work.pace import Progress, Step
from streambank.work.target import Owner
from tests.support.jobs.simulated_job import BY, SimulatedJob, quick_store
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import WRITES, Fault, FaultyStore, SimulatedCrash


def into_generation(shop: SimulatedJob, savepoint: str, progress: Progress | None = None) -> RestoreReport:
    return shop.restore_next(savepoint, by=BY, sink="accept", pace=Pace(parallel=1, progress=progress))


@pytest.fixture(autouse=True)
def every_look_is_a_fresh_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is after standing still."""
    monkeypatch.setattr("streambank.work.target.NOTE_EVERY_S", 0.0)


@pytest.mark.parametrize("after", ["two-files", "all-files"])
def test_what_another_has_restored_meanwhile_stays_whole(shop: SimulatedJob, after: str) -> None:
    shop.run(3)
    older = shop.take().savepoint
    shop.run(4)
    newer = shop.take().savepoint
    reports: list[RestoreReport] = []

    def others(step: Step) -> None:
        """The locks of a restore that stands still are broken, and the job is restored by somebody else."""
        when = 2 if after == "two-files" else step.files_total
        if step.phase == "write" and step.files_done == when and not reports:
            control = shop.control()
            control.operation_lock.break_off(by=BY, why="silent", even_live=True)
            control.lease.break_off(by=BY, why="silent", even_live=True)
            reports.append(into_generation(shop, newer))

    with pytest.raises(ConflictError) as caught:
        into_generation(shop, older, others)

    assert caught.value.code == "target-moved"
    (report,) = reports
    place = quick_store(report.layout.target)
    assert CheckpointReader(place).closure().batch == 6
    expected = shop.restore(newer, "expected", sink="accept")
    assert contents(place) == contents(quick_store(expected.layout.target))
    current = shop.control().generation()
    assert current is not None
    assert (current.number, current.from_savepoint) == (2, newer)


def test_of_two_that_take_over_from_a_dead_one_the_slower_touches_nothing(
    shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run(3)
    taken = shop.take().savepoint
    dying = FaultyStore(shop.open("restored"), Fault("crash-before", call=5, operations=frozenset({"write"})))
    with pytest.raises(SimulatedCrash):
        restore(RestoreRequest(shop.repository, taken, into=dying, opener=quick_store))
    dying.assert_fired()
    original = materialize.check_target
    quicker: list[RestoreReport] = []

    def then_another_does_it_all(target: Store, owner: Owner) -> list[FileInfo]:
        found = original(target, owner)
        if not quicker:
            monkeypatch.setattr(materialize, "check_target", original)
            quicker.append(shop.restore(taken))
        return found

    monkeypatch.setattr(materialize, "check_target", then_another_does_it_all)
    with pytest.raises(ConflictError) as caught:
        shop.restore(taken)

    assert caught.value.code == "target-moved"
    assert quicker[0].layout.cleared_files > 1
    assert CheckpointReader(shop.open("restored")).closure().batch == 2


def test_an_answer_that_was_lost_leaves_nothing_and_no_moment_to_start(shop: SimulatedJob) -> None:
    shop.run(3)
    taken = shop.take().savepoint
    whole = FaultyStore(shop.open("whole"))
    restore(RestoreRequest(shop.repository, taken, into=whole, opener=quick_store))
    writes = sum(call.operation == "write" for call in whole.calls)
    fault = Fault("lost-reply", call=writes, operations=frozenset({"write"}))
    target = FaultyStore(shop.open("restored"), fault)

    with pytest.raises(StorageError):
        restore(RestoreRequest(shop.repository, taken, into=target, opener=quick_store))

    target.assert_fired()
    assert contents(shop.open("restored")) == {}
    changes = [(call.operation, call.key) for call in target.calls if call.operation in WRITES]
    written = [number for number, change in enumerate(changes) if change == ("write", "metadata")]
    assert len(written) == 3  # the note, what replaced it, and the note before anything is removed
    assert {operation for operation, _ in changes[written[-1] + 1 :]} == {"delete", "prune"}


class TestRestoresAtOnce:
    def test_the_same_directory_belongs_to_one(self, shop: SimulatedJob) -> None:
        shop.run(3)
        taken = shop.take()
        codes: list[str] = []

        def second(step: object) -> None:
            if not codes:
                try:
                    shop.restore(taken.savepoint)
                except StreambankError as error:
                    codes.append(error.code)

        shop.restore(taken.savepoint, pace=Pace(progress=second))
        assert codes == ["restore-in-progress"]
        assert CheckpointReader(shop.open("restored")).closure().batch == 2

    def test_a_note_of_another_host_is_not_judged_and_foreign_files_beside_it_stay(
        self, shop: SimulatedJob
    ) -> None:
        shop.run(3)
        taken = shop.take()
        target = shop.open("restored")
        note = {"owner": {"host": "elsewhere"}, "files": ["metadata"]}
        target.write("metadata", json.dumps({"streambank_restore": note}).encode())
        with pytest.raises(ConflictError, match="may be at work") as caught:
            shop.restore(taken.savepoint)
        assert caught.value.code == "restore-in-progress"

        target.write("precious", b"1")  # foreign files beside a note are never removed
        with pytest.raises(RefusedError, match="precious"):
            shop.restore(taken.savepoint)
        assert target.read("precious") == b"1"
