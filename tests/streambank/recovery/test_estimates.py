from __future__ import annotations

import pytest

from streambank.control.control import JobControl
from streambank.control.drills import record_drill
from streambank.control.records import RecordStream
from streambank.recovery.estimates import estimates, unknown_times
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.savepoint.verify import verify
from streambank.storage.memory import MemoryStore
from tests.support.jobs.simulated_job import JOB, SimulatedJob, quick_store

AT = "2026-11-20T10:43:30.000Z"


class TestEstimates:
    """How long it will take, by the newest restore of the query and the newest drill that passed."""

    @pytest.fixture
    def control(self) -> JobControl:
        return JobControl(MemoryStore(), "orders")

    def restored(self, control: JobControl, seconds: float, size_bytes: int, job: str = "orders") -> None:
        RecordStream(control.store, "restores").append(
            {"job": job, "seconds": seconds, "bytes": size_bytes, "started_at": AT}
        )

    def test_nothing_where_there_is_nothing_to_go_by(self, control: JobControl) -> None:
        assert estimates(control, "orders", 1000) == ()
        self.restored(control, 10.0, 1000, job="orders/late")
        record_drill(control, {"passed": False, "rto_s": 5.0, "started_at": AT})
        assert estimates(control, "orders", 1000) == ()

    @pytest.mark.parametrize(("size_bytes", "seconds"), [(1000, 10.0), (3000, 30.0), (10, 10.0)])
    def test_more_takes_longer_and_less_is_not_faster(
        self, control: JobControl, size_bytes: int, seconds: float
    ) -> None:
        self.restored(control, 99.0, 1000)
        self.restored(control, 10.0, 1000)
        (found,) = estimates(control, "orders", size_bytes)
        assert (found.until, found.seconds, found.took_s) == ("restored", seconds, 10.0)
        assert found.sentence() == (
            f"about {seconds:.0f} s for the copy of its files, not until the first batch: "
            "1 kB took 10 s at 2026-11-20T10:43:30.000Z"
        )

    def test_what_nothing_tells_of_is_said_to_be_not_known(self) -> None:
        assert "the copy of its files takes is not known" in unknown_times([])
        assert unknown_times(["restored"]).startswith("How long it takes until the first batch is not known")
        assert unknown_times(["restored", "first-batch"]) == ""

    def test_a_drill_tells_of_the_first_batch(self, control: JobControl) -> None:
        record_drill(control, {"passed": True, "rto_s": 42.0, "started_at": AT})
        record_drill(control, {"passed": False, "rto_s": 5.0, "started_at": AT})
        (found,) = estimates(control, "orders", 1000)
        assert (found.until, found.seconds) == ("first-batch", 42.0)
        assert "the drill at 2026-11-20T10:43:30.000Z" in found.sentence()

    def test_reports_that_say_something_else_are_left_out(self, control: JobControl) -> None:
        records = RecordStream(control.store, "restores")
        self.restored(control, 10.0, 0)
        records.append({"job": "orders", "seconds": "long", "bytes": 1, "started_at": AT})
        records.append({"job": "orders", "seconds": 1.0, "bytes": 1, "started_at": "soon"})
        (found,) = estimates(control, "orders", 1000)
        assert found.seconds == 10.0


def test_a_plan_says_what_is_read_again_how_long_it_takes_and_what_comes_next(shop: SimulatedJob) -> None:
    taken = []
    for _ in range(5):
        shop.run(2)
        taken.append(shop.take())
    shop.run(2)
    shop.live.plan()
    verify(shop.repository, JOB, taken[2].savepoint, "full")
    shop.repository.record_verification(JOB, taken[1].savepoint, level="full", ok=False, findings=1)

    def plan(reference: str) -> dict[str, object]:
        request = RestoreRequest(
            shop.repository, reference, into=shop.open("back"), control=shop.control(), sink="accept",
            opener=quick_store,
        )  # fmt: skip
        return plan_restore(request).to_dict()

    found = plan(taken[3].savepoint)
    assert found["watermark_ms"] == 7500
    assert "goes back to 1970-01-01T00:00:07.500Z" in str(found["watermark_effect"])
    assert found["read_again"] == [8, 12], "batch 12 was begun"
    assert "batches 8 to 12" in str(found["read_again_effect"])
    assert found["estimates"] == []
    following = found["next"]
    assert isinstance(following, list)
    ids = [one["savepoint"] for one in following]
    assert ids == [taken[2].savepoint, taken[0].savepoint], "not a damaged one"
    assert [one["verified_level"] for one in following] == ["full", None]
    assert "never verified" in following[1]["says"]
    assert [len(plan(one.savepoint)["next"]) for one in (taken[0], taken[4])] == [0, 3]  # type: ignore[arg-type]
    RecordStream(shop.control().store, "restores").append(
        {"job": JOB, "seconds": 5.0, "bytes": 10**9, "started_at": AT}
    )
    found_now = plan("latest")["estimates"]
    assert isinstance(found_now, list)
    assert [one["seconds"] for one in found_now] == [5.0]
