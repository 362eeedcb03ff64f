"""A restore into the next generation of its job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streambank.checkpoint.reader import CheckpointReader
from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.core.errors import InputError, IntegrityError, RefusedError, StorageError, StreambankError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.work.executor import Pace
from tests.support.checkpoint.file_sink import FileSinkWriter
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses
from tests.support.storage.contents import contents


class TestGenerations:
    def test_switches_to_the_next_one(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        control = shop.control()
        report = restore(
            RestoreRequest(shop.repository, taken.savepoint, generation=control, by=BY, opener=quick_store)
        )
        current = control.generation()
        assert current is not None
        assert (current.number, current.from_savepoint) == (2, taken.savepoint)
        assert current.location == report.layout.target == f"{shop.checkpoint.uri}.g0002"
        assert CheckpointReader(quick_store(current.location)).closure().batch == 4
        assert control.generations().all()[0].location == shop.checkpoint.uri
        left = control.store.read("restores/0000000001.json")
        assert json.loads(left)["savepoint"] == taken.savepoint
        again = restore(
            RestoreRequest(shop.repository, taken.savepoint, generation=control, by=BY, opener=quick_store)
        )
        assert again.plan.generation == 3

    def test_refused_while_a_driver_lives(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        control = shop.control()
        lease = control.lease.acquire([this_process("python")])
        targets: list[dict[str, Any]] = [
            {"generation": control, "opener": quick_store},
            {"into": shop.open("restored"), "opener": quick_store},
        ]
        for target in targets:
            with refuses(RefusedError, "lease-held") as caught:
                restore(RestoreRequest(shop.repository, taken.savepoint, **target))
            plan = plan_restore(RestoreRequest(shop.repository, taken.savepoint, **target))
            assert [error.code for error in plan.refusals] == ["lease-held"]
            for error in (caught.value, *plan.refusals):
                assert ("--mode fork" in error.hint) == ("into" in target)
        assert control.generation() is None
        assert contents(shop.open("restored")) == {}
        beside = RestoreRequest(
            shop.repository, taken.savepoint, into=shop.open("beside"), opener=quick_store, mode="fork"
        )
        assert "lease-held" not in [error.code for error in plan_restore(beside).refusals]
        lease.release()
        restore(RestoreRequest(shop.repository, taken.savepoint, generation=control, opener=quick_store))

    def test_a_driver_cannot_start_meanwhile(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        control = shop.control()
        refused: list[str] = []

        def start_a_driver(step: object) -> None:
            if not refused:
                try:
                    shop.control().lease.acquire([this_process("python")])
                except RefusedError as error:
                    refused.append(error.code)

        restore(
            RestoreRequest(shop.repository, taken.savepoint, generation=control, opener=quick_store),
            pace=Pace(progress=start_a_driver),
        )
        assert refused == ["lease-held"]

    def test_two_restores_at_once_make_one_generation(self, shop: SimulatedJob) -> None:
        taken = shop.run(5).take()
        codes: list[str] = []

        def second(step: object) -> None:
            if not codes:
                try:
                    shop.restore_next(taken.savepoint)
                except StreambankError as error:
                    codes.append(error.code)

        shop.restore_next(taken.savepoint, pace=Pace(progress=second))
        assert codes == ["operation-in-progress"]
        assert [one.number for one in shop.control().generations().all()] == [1, 2]

    def test_another_jobs_savepoint_is_refused(self, shop: SimulatedJob) -> None:

        taken = shop.run(3).take()
        other = JobControl(shop.open("repository.control/other"), "other")
        with refuses(InputError, "another-job"):
            restore(RestoreRequest(shop.repository, taken.savepoint, generation=other))

    def test_the_leftovers_of_a_restore_that_died_are_taken_over(self, shop: SimulatedJob) -> None:
        taken = shop.run(3).take()
        died = quick_store(f"{shop.checkpoint.uri}.g0002")
        note = {"owner": {"host": "elsewhere"}, "files": ["commits/2", "metadata"]}
        died.write("metadata", json.dumps({"streambank_restore": note}).encode())
        died.write("commits/2", b"half")
        report = shop.restore_next(taken.savepoint)
        assert (report.plan.generation, report.layout.cleared_files) == (2, 2)
        assert CheckpointReader(died).closure().batch == 2

    def test_an_output_that_was_left_stays_left(self, shop: SimulatedJob) -> None:
        """Also when a later savepoint is restored, which knows only the output that the query went to."""
        first = shop.run(4).take().savepoint
        shop.run(1)
        old, new, newer = (shop.open(name).uri for name in ("out", "new-out", "newer-out"))

        def go_to(savepoint: str, **outputs: str) -> dict[str, str]:
            restore(
                RestoreRequest(
                    shop.repository,
                    savepoint,
                    generation=shop.control(),
                    by=BY,
                    opener=quick_store,
                    sink="accept",
                    new_sinks={shop.open(name).uri: place for name, place in outputs.items()},
                )
            )
            current = shop.control().generation()
            assert current is not None
            return dict(current.new_sinks)

        assert go_to(first, out=new) == {old: new}
        went_on = LiveCheckpoint(quick_store(f"{shop.checkpoint.uri}.g0002"), query_id=shop.live.query_id)
        went_on.next_batch = 4
        FileSinkWriter(shop.open("new-out")).write(4, [{"batch": 4}])
        went_on.run(1)
        sinks = [FileSinkCapture(new, shop.open("new-out"))]
        second = take(TakeRequest(went_on.store, shop.repository, JOB, sinks=sinks)).savepoint
        assert go_to(second) == {old: new}
        assert go_to(second, **{"new-out": newer}) == {old: newer, new: newer}
        # back in the first output, by a savepoint of it: nothing is left behind there
        assert go_to(first) == {}

    def test_one_that_cannot_be_claimed_is_restored_all_the_same(
        self, shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = shop.run(3).take(pin=True)

        def damaged(self: Repository, job: str, savepoint: str) -> bool:
            raise IntegrityError("The mark is damaged.")

        monkeypatch.setattr(Repository, "pinned", damaged)
        with refuses(StorageError, "not-claimed", match="is done, but the savepoint was not claimed"):
            shop.restore_next(taken.savepoint, mode="claim")
        current = shop.control().generation()
        assert current is not None
        assert current.number == 2
        assert shop.control().store.exists("restores/0000000001.json")
