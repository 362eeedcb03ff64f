"""Sinks of several kinds behind one query: each is judged, and each may have its own choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.control.rollbacks import check_not_rolled_back
from streambank.core.errors import InputError, RefusedError
from streambank.core.restore_choices import parse_sink_choices
from streambank.job.savepoint import sinks_of
from streambank.kafka.settings import Brokers
from streambank.recovery.choices import SinkChoices
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore, restore
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.declared import DeclaredSink
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.sinks.lake import Lake

FOREACH = "ForeachBatchSink"
WRITER = "orders"
LOG = "the audit log"


class Shop:
    """A job that writes each batch to a Delta table, and appends it to a log that remembers nothing."""

    def __init__(self, folder: Path) -> None:
        self.job = SimulatedJob(folder, sink=False)
        self.lake = Lake(folder / "lake", WRITER)
        self.control = self.job.control()
        self.control.generations().ensure_first(self.job.checkpoint.uri, by=BY)
        self.declared: tuple[DeclaredSink, ...] = (
            DeclaredSink("delta", self.job.open("lake").uri, writer=WRITER),
            DeclaredSink("append", LOG),
        )

    @property
    def table(self) -> str:
        return self.declared[0].path

    def run(self, batches: int) -> None:
        for _ in range(batches):
            batch = self.job.live.next_batch
            self.job.live.plan()
            self.lake.write(batch, [f"{batch}-0", f"{batch}-1"])
            self.job.live.commit()
        facts = {"query_id": self.job.live.query_id, "sink": FOREACH, "generation": 1}
        self.control.record_query(None, facts)

    def take(self) -> str:
        facts = self.control.query_facts(None) or {}
        sinks = sinks_of(facts, self.job.checkpoint, Brokers(), self.declared)
        request = TakeRequest(self.job.checkpoint, self.job.repository, JOB, sinks=sinks)
        return take(request).savepoint

    def request(self, savepoint: str, **options: Any) -> RestoreRequest:
        options = {"declared_sinks": self.declared, **options}
        return RestoreRequest(
            self.job.repository, savepoint, generation=self.control, by=BY, opener=quick_store, **options
        )


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.run(5)
    return made


@pytest.fixture
def ahead(shop: Shop) -> str:
    """The savepoint of batch 4 of a query that has gone on to batch 7."""
    savepoint = shop.take()
    shop.run(3)
    return savepoint


def test_each_sink_is_named_with_its_harm(shop: Shop, ahead: str) -> None:
    plan = plan_restore(shop.request(ahead))
    assert [one.code for one in plan.refusals] == ["sink-would-lose-rows", "sink-not-guarded"]
    table, log = plan.sinks
    assert (table["kind"], table["later_batches"], table["later_rows"]) == ("delta", 3, 6)
    assert (log["kind"], log["harm"], log["newest_batch"]) == ("append", "repeated", 7)
    assert "rows of batches 5 to 7 are repeated" in plan.sink_effect()
    assert "batches 5 to 7 (6 rows)" in plan.sink_effect()
    assert plan.mixed_sinks == {LOG: "accept"}


def test_one_choice_for_all_may_not_do(shop: Shop, ahead: str) -> None:
    with pytest.raises(RefusedError) as caught:
        restore(shop.request(ahead, sink="rollback"))
    assert caught.value.code == "sink-not-guarded" and "cannot be rolled back" in caught.value.message
    assert shop.lake.open().version() == 7, "nothing was rolled back"


def test_the_table_goes_back_and_the_log_is_left(shop: Shop, ahead: str) -> None:
    report = restore(shop.request(ahead, sink="rollback", sink_of={LOG: "accept"}))
    assert sorted(shop.lake.rows()) == [f"{batch}-{row}" for batch in range(5) for row in range(2)]
    (rolled_back,) = report.rolled_back
    assert (rolled_back["kind"], rolled_back["batch"], rolled_back["rows_removed"]) == ("delta", 4, 6)
    assert "What can be rolled back was rolled back; the rest was accepted." in report.sink_effect
    assert [one["choice"] for one in report.plan.sinks] == ["rollback", "accept"]
    assert shop.lake.write(5, ["new"]), "batch 5 is not taken for done any more"


def test_without_the_declaration_it_is_refused_by_name(shop: Shop, ahead: str) -> None:
    plan = plan_restore(shop.request(ahead, declared_sinks=()))
    codes = {one.code for one in plan.refusals}
    assert "sink-not-known" in codes and "Declare it" in plan.refusals[0].hint
    assert plan.possible_choices.sink == ("accept",)


def test_a_savepoint_from_before_the_declaration_finds_its_batch(shop: Shop) -> None:
    declared, shop.declared = shop.declared, ()
    savepoint = shop.take()
    shop.declared = declared
    shop.run(2)
    restore(shop.request(savepoint, sink="rollback", sink_of={LOG: "accept"}))
    assert len(shop.lake.rows()) == 10


def test_what_is_idempotent_stops_nothing(shop: Shop, ahead: str) -> None:
    by_key = (shop.declared[0], DeclaredSink("idempotent-by-key", LOG))
    plan = plan_restore(shop.request(ahead, declared_sinks=by_key, sink="rollback"))
    assert plan.possible
    assert plan.sinks[1]["harm"] == "overwritten" and plan.sinks[1]["safe"]
    assert "declared idempotent by key" in plan.sink_effect()


def test_a_start_is_refused_between_the_table_and_the_new_generation(
    shop: Shop, ahead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore dies right after the table went back; the same restore then finds it there."""
    fired: list[str] = []

    def die(*_: object) -> None:
        fired.append("begin_outputs")
        raise KeyboardInterrupt

    choices = {"sink": "rollback", "sink_of": {LOG: "accept"}}
    with monkeypatch.context() as patch:
        patch.setattr("streambank.recovery.restore.begin_outputs", die)
        with pytest.raises(KeyboardInterrupt):
            restore(shop.request(ahead, **choices))
    assert fired and len(shop.lake.rows()) == 10
    current = shop.control.generation()
    assert current is not None and current.number == 1
    with pytest.raises(RefusedError) as caught:
        check_not_rolled_back(shop.control, None, current)
    assert caught.value.code == "sinks-taken-back" and "may have been rolled back" in caught.value.message
    version = shop.lake.open().version()
    restore(shop.request(ahead, **choices))
    now = shop.control.generation()
    assert now is not None and now.number == 2 and shop.lake.open().version() == version
    check_not_rolled_back(shop.control, None, now)


def test_an_unknown_sink_is_named(shop: Shop, ahead: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_restore(shop.request(ahead, sink_of={"elsewhere": "accept"}))
    assert caught.value.code == "unknown-sink" and LOG in caught.value.hint


def test_a_fork_shares_the_table(shop: Shop, ahead: str) -> None:
    request = shop.request(ahead, mode="fork")
    forked = RestoreRequest(
        request.repository,
        ahead,
        into=shop.job.open("fork"),
        mode="fork",
        opener=quick_store,
        control=shop.control,
        declared_sinks=shop.declared,
    )
    plan = plan_restore(forked)
    assert "fork-shares-sink" in {one.code for one in plan.refusals}
    assert any("under one name: each skips" in one for one in plan.warnings), "the writer is its own"


def test_choices_are_read_from_the_last_equals_sign() -> None:
    assert parse_sink_choices(["s3://b/k=1=accept"]) == {"s3://b/k=1": "accept"}
    assert SinkChoices("rollback", {"a": "accept"})["b"] == "rollback"
    for wrong in (["a"], ["=accept"], ["a=never"], ["a=accept", "a=accept"]):
        with pytest.raises(InputError, match="does not name one sink"):
            parse_sink_choices(wrong)


class TestAnotherLineOfTheQuery:
    """The query was restored since the savepoint: batches of the same numbers are others."""

    def test_a_savepoint_that_does_not_tell_is_not_judged_by_numbers(self, shop: Shop) -> None:
        early = shop.take()  # batch 4
        declared, shop.declared = shop.declared, ()
        shop.run(1)
        mute = shop.take()  # batch 5, which says nothing of the table
        shop.declared = declared
        restore(shop.request(early, sink="rollback", sink_of={LOG: "accept"}))
        shop.lake.write(5, ["another"])
        plan = plan_restore(shop.request(mute, sink="rollback", sink_of={LOG: "accept"}))
        table = next(one for one in plan.sinks if one["kind"] == "delta")
        assert table["position"] == "not-known" and "batch 5 is another one than" in table["says"]
        assert not plan.possible

    def test_a_batch_of_the_same_number_in_an_earlier_line(self, shop: Shop) -> None:
        """The query went to another line of its life by a savepoint that is not of an earlier batch."""
        early = shop.take()  # batch 4
        shop.run(1)
        first = shop.take()  # batch 5
        choices: dict[str, Any] = {"sink": "rollback", "sink_of": {LOG: "accept"}}
        restore(shop.request(early, **choices))
        shop.lake.write(5, ["another"])
        second = quick_store(f"{shop.job.base}/second")
        LiveCheckpoint(second, query_id=shop.job.live.query_id).run(6)
        other = second.read("offsets/5").replace(b'"batchTimestampMs": 5', b'"batchTimestampMs": 50')
        second.write("offsets/5", other)
        mute = take(TakeRequest(second, shop.job.repository, JOB)).savepoint
        assert mute != first and plan_restore(shop.request(mute, **choices)).possible
        restore(shop.request(first, **choices))
        table = plan_restore(shop.request(mute, **choices)).sinks[0]
        assert table["position"] == "not-known" and "batch 5 is another one than" in table["says"]

    def test_one_that_tells_is_judged_by_what_it_tells(self, shop: Shop) -> None:
        early = shop.take()
        shop.run(1)
        late, before = shop.take(), shop.lake.rows()
        restore(shop.request(early, sink="rollback", sink_of={LOG: "accept"}))
        shop.lake.write(5, ["another"])
        plan = plan_restore(shop.request(late, sink="rollback", sink_of={LOG: "accept"}))
        assert plan.sinks[0]["position"] == "diverged" and plan.possible
        restore(shop.request(late, sink="rollback", sink_of={LOG: "accept"}))
        assert shop.lake.rows() == before


def test_a_sink_that_is_declared_no_more_is_not_forgotten(shop: Shop) -> None:
    shop.declared = (DeclaredSink("append", LOG),)
    savepoint = shop.take()
    shop.run(2)
    plan = plan_restore(shop.request(savepoint, declared_sinks=()))
    assert {one.code for one in plan.refusals} == {"sink-not-guarded"}
    assert LOG in plan.sink_effect()


def test_what_was_declared_append_and_is_a_table_now_is_the_table(shop: Shop) -> None:
    declared = shop.declared
    shop.declared = (DeclaredSink("append", declared[0].path),)
    savepoint = shop.take()
    shop.run(2)
    plan = plan_restore(shop.request(savepoint, declared_sinks=declared[:1], sink="rollback"))
    assert [one["kind"] for one in plan.sinks] == ["delta"] and plan.possible


def test_the_same_savepoint_can_be_restored_again(shop: Shop) -> None:
    """It says nothing of the table, and the query was restored since: to no other batch of its number."""
    declared, shop.declared = shop.declared, ()
    savepoint = shop.take()
    shop.declared = declared
    for batch in (5, 6):
        shop.lake.write(batch, [f"{batch}"])
        restore(shop.request(savepoint, sink="rollback", sink_of={LOG: "accept"}))
        assert len(shop.lake.rows()) == 10
