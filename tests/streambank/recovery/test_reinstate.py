"""An earlier generation that counts again: only where nothing was given to a sink since."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.generations import Generation
from streambank.control.processes import this_process
from streambank.core.errors import NotFoundError, RefusedError
from streambank.recovery import reinstate as reinstating
from streambank.recovery.reinstate import Reinstated, reinstate
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.recovery.sinks.sinks import look_at_sinks
from streambank.savepoint.sinks import SinkCapture
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.delta import DeltaGuard
from streambank.sinks.ledger import LedgerGuard
from streambank.sinks.unguarded import UnguardedSink
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.repository.derived_savepoint import derive
from tests.support.storage.faulty_store import killed_at


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path).run(5)


def exchanged(shop: SimulatedJob, *sinks: SinkCapture, names_none: bool = False) -> str:
    """Let generation 2 have other state; the savepoint of generation 1, with its sink, these or none."""
    request = TakeRequest(shop.checkpoint, shop.repository, JOB, sinks=sinks)
    before = (take(request) if sinks or names_none else shop.take()).savepoint
    shop.control().generations().ensure_first(shop.checkpoint.uri, by=BY)
    made = derive(shop.repository, JOB, before)
    shop.restore_next(made, unmoved=True, by=BY)
    assert current(shop).number == 2
    return before


def current(shop: SimulatedJob) -> Generation:
    found = shop.control().generation()
    assert found is not None
    return found


def back(shop: SimulatedJob, savepoint: str, generation: int = 1) -> Reinstated:
    return reinstate(
        shop.repository, JOB, savepoint, generation=generation, control=shop.control(), by=BY, why="a test"
    )


def refused(shop: SimulatedJob, savepoint: str) -> str:
    before = current(shop)
    with pytest.raises(RefusedError) as caught:
        back(shop, savepoint)
    assert caught.value.hint
    assert current(shop) == before, "nothing was switched"
    return caught.value.code


def go_on(shop: SimulatedJob) -> LiveCheckpoint:
    """The query in the generation that counts."""
    live = LiveCheckpoint(quick_store(current(shop).location), query_id=shop.live.query_id)
    live.next_batch = shop.live.next_batch
    return live


def test_the_earlier_directory_counts_again(shop: SimulatedJob) -> None:
    before = exchanged(shop)
    left = current(shop).location

    done = back(shop, before)

    assert done == Reinstated(JOB, 3, 1, shop.checkpoint.uri, left, 4)
    now = current(shop)
    assert (now.number, now.again, now.location, now.base) == (3, 1, shop.checkpoint.uri, shop.checkpoint.uri)
    event = shop.control().last_event("reinstated")
    assert event is not None
    assert (event["savepoint"], event["left"], event["why"]) == (before, left, "a test")
    again = shop.restore_next(before, by=BY)
    assert again.layout.target == f"{shop.checkpoint.uri}.g0004", "numbers go on, and so do directories"


def test_a_restored_generation_can_count_again_too(shop: SimulatedJob) -> None:
    before = exchanged(shop)
    made = derive(shop.repository, JOB, before)
    shop.restore_next(made, unmoved=True, by=BY)
    second = f"{shop.checkpoint.uri}.g0002"

    assert back(shop, before, 2).location == second
    assert (current(shop).number, current(shop).again, current(shop).base) == (4, 2, shop.checkpoint.uri)
    assert shop.control().generations().ensure_first(shop.checkpoint.uri, by=BY).number == 4
    assert back(shop, before, 1).again == 1


def test_what_counts_already_is_left_alone(shop: SimulatedJob) -> None:
    before = exchanged(shop)
    back(shop, before)
    numbers = shop.control().generations().records.numbers()
    assert back(shop, before).left is None
    assert shop.control().generations().records.numbers() == numbers


def test_refused_where_the_next_generation_has_committed_a_batch(shop: SimulatedJob) -> None:
    before = exchanged(shop)
    go_on(shop).run(1)
    assert refused(shop, before) == "query-went-on"


def test_refused_where_its_sink_is_further(shop: SimulatedJob) -> None:
    """Killed between the sink's commit and its own: Spark would skip that batch, whatever it is to hold."""
    before = exchanged(shop)
    go_on(shop).plan()
    assert shop.sink is not None
    shop.sink.write(5, [{"batch": 5}])
    assert refused(shop, before) == "sink-would-lose-rows"


def test_a_batch_that_was_begun_does_no_harm_where_the_sink_says_that_it_got_nothing(
    shop: SimulatedJob,
) -> None:
    before = exchanged(shop)
    go_on(shop).plan()
    assert back(shop, before).generation == 3


def test_refused_where_a_batch_was_begun_and_the_sink_cannot_be_asked(tmp_path: Path) -> None:
    shop = SimulatedJob(tmp_path, sink=False).run(5)
    before = exchanged(shop, names_none=True)
    go_on(shop).plan()
    assert refused(shop, before) == "batch-begun"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("delta", "batch-begun"),
        ("ledger", "batch-begun"),
        ("append", "batch-begun"),
        ("ForeachBatchSink", "batch-begun"),
        ("idempotent-by-key", None),
        ("ConsoleTable", None),
    ],
)
def test_a_batch_that_was_begun_counts_by_what_its_sink_is(
    tmp_path: Path, kind: str, code: str | None
) -> None:
    shop = SimulatedJob(tmp_path, sink=False).run(5)
    tables: dict[str, SinkCapture] = {
        "delta": DeltaGuard(str(tmp_path / "lake"), shop.live.query_id),
        "ledger": LedgerGuard("books", "sqlite:////none", shop.live.query_id),
    }
    before = exchanged(shop, tables.get(kind) or UnguardedSink(kind, "a sink"))
    go_on(shop).plan()
    if code is None:
        assert back(shop, before).generation == 3
    else:
        assert refused(shop, before) == code


def test_refused_where_the_earlier_generation_has_gone_on(shop: SimulatedJob) -> None:
    before = exchanged(shop)
    shop.live.plan()
    assert refused(shop, before) == "batch-begun"
    shop.live.commit()
    assert refused(shop, before) == "query-went-on"


def test_refused_while_a_driver_lives(shop: SimulatedJob) -> None:
    before = exchanged(shop)
    lease = shop.control().lease.acquire([this_process("python")])
    assert refused(shop, before) == "lease-held"
    lease.release()
    back(shop, before)


def test_refused_where_a_restore_that_died_has_taken_the_sink_back(
    shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.run(1)
    early = shop.take().savepoint
    shop.run(2)
    before = exchanged(shop)
    with killed_at(monkeypatch, "streambank.control.generations.Generations.switch"):
        shop.restore_next(early, sink="rollback")
    assert refused(shop, before) == "sinks-taken-back"


def test_there_has_to_be_such_a_generation(shop: SimulatedJob) -> None:
    before = exchanged(shop)
    with pytest.raises(NotFoundError) as caught:
        back(shop, before, 7)
    assert caught.value.code == "no-such-generation"


def test_a_lock_that_was_broken_switches_nothing(shop: SimulatedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    before = exchanged(shop)
    look = look_at_sinks

    def break_and_look(*args: object, **options: object) -> object:
        shop.control().lease.break_off(by=BY, why="a test", even_live=True)
        return look(*args, **options)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(reinstating, "look_at_sinks", break_and_look)
    with pytest.raises(Exception, match="broken"):
        back(shop, before)
    assert current(shop).number == 2


class TestUnmoved:
    """A restore that loses nothing: only where the query stands where its savepoint was taken."""

    @pytest.mark.parametrize(("step", "code"), [("run", "query-went-on"), ("plan", "batch-begun")])
    def test_refused_where_the_query_has_gone_on(self, shop: SimulatedJob, step: str, code: str) -> None:
        made = derive(shop.repository, JOB, shop.take().savepoint)
        if step == "run":
            shop.live.run(1)
        else:
            shop.live.plan()
        target = {"generation": shop.control(), "opener": quick_store, "checkpoint": shop.checkpoint.uri}
        plan = plan_restore(RestoreRequest(shop.repository, made, unmoved=True, **target))  # type: ignore[arg-type]  # as a request has them
        assert [error.code for error in plan.refusals] == [code]
        with pytest.raises(RefusedError) as caught:
            restore(RestoreRequest(shop.repository, made, unmoved=True, **target))  # type: ignore[arg-type]  # as a request has them
        assert caught.value.code == code
        restore(RestoreRequest(shop.repository, made, **target))  # type: ignore[arg-type]  # control: it is that alone
