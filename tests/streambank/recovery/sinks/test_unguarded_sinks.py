"""A restore below the newest batch that a sink was sent, where that sink cannot be judged or rolled back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.progress import ProgressWriter
from streambank.core.choices import SinkChoice
from streambank.core.errors import RefusedError
from streambank.kafka.sink import KafkaSinkStanding
from streambank.recovery import restore as restoring
from streambank.recovery.plan import RestorePlan
from streambank.recovery.preconditions import Prepared, prepare
from streambank.recovery.report import RestoreReport
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import plan_restore
from streambank.recovery.sinks.reached import Reached
from streambank.recovery.sinks.topics import kafka_refusals
from streambank.savepoint.take import TakeRequest, TakeResult, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.unguarded import harm_of, sink_name, sinks_from_descriptions
from streambank.storage.store import Store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import BY, JOB, SimulatedJob, quick_store
from tests.support.refuses import refuses

FOREACH = "ForeachBatchSink"
DELTA = "DeltaSink[file:/data/orders]"
KAFKA = "KafkaSourceProvider$KafkaTable"
CONSOLE = "org.apache.spark.sql.execution.streaming.ConsoleTable$"
FOREACH_WRITER = (
    "ForeachWriterTable(org.apache.spark.sql.execution.python.streaming.PythonForeachWriter,Right(org.apache."
    "spark.sql.execution.streaming.sources.ForeachWriterTable$$$Lambda$2867/0x00007f81acf4bd10))"
)


@pytest.fixture
def bare(tmp_path: Path) -> SimulatedJob:
    """A query that no job runs."""
    return SimulatedJob(tmp_path, sink=False).run(5)


@pytest.fixture
def managed(bare: SimulatedJob) -> SimulatedJob:
    """A query of a job, at batch 4 of generation 1."""
    control = bare.control()
    control.generations().ensure_first(bare.checkpoint.uri, by=BY)
    facts = {"query_id": bare.live.query_id, "sink": FOREACH, "generation": 1}
    control.record_query(None, facts)
    control.record_event("query-started", query="main", **facts)
    return bare


def saved(shop: SimulatedJob, sink: str = FOREACH, *, checkpoint: Store | None = None) -> TakeResult:
    managed = {"records": shop.control().store.uri} if shop.control().generation() is not None else {}
    return take(
        TakeRequest(
            checkpoint or shop.checkpoint,
            shop.repository,
            JOB,
            sinks=sinks_from_descriptions([sink]),
            taken_by=managed,
        )
    )


def planned(shop: SimulatedJob, taken: TakeResult, **options: Any) -> RestorePlan:
    target: dict[str, Any] = {"into": shop.open("restored")} if "generation" not in options else {}
    return plan_restore(
        RestoreRequest(shop.repository, taken.savepoint, opener=quick_store, **target, **options)
    )


def said(shop: SimulatedJob, taken: TakeResult, **options: Any) -> str:
    """The message of the one refusal."""
    (refusal,) = planned(shop, taken, **options).refusals
    assert refusal.code == "sink-not-guarded" and refusal.exit_code == 8
    assert "--sink accept" in refusal.hint
    return refusal.message


def next_generation(shop: SimulatedJob, taken: TakeResult, **options: Any) -> RestoreReport:
    return shop.restore_next(taken.savepoint, by=BY, **options)


def going_on(shop: SimulatedJob, batches: int) -> LiveCheckpoint:
    """The query in the generation that counts."""
    current = shop.control().generation()
    assert current is not None
    live = LiveCheckpoint(quick_store(current.location), query_id=shop.live.query_id)
    live.next_batch = 1 + max(int(name) for name in live.store.names("commits"))
    return live.run(batches)


def wipe(store: Store) -> None:
    for one in list(store.list()):
        store.delete(one.path)


class TestBelow:
    def test_it_is_refused_until_it_is_accepted(self, bare: SimulatedJob) -> None:
        taken = saved(bare)
        bare.run(6)
        with refuses(RefusedError, "sink-not-guarded"):
            bare.restore(taken.savepoint)
        assert not list(bare.open("restored").list())
        report = bare.restore(taken.savepoint, sink="accept")
        assert "batches 5 to 10" in report.sink_effect and "This was accepted." in report.sink_effect
        assert report.to_dict()["sink_effect"] == report.sink_effect
        assert report.to_dict()["reached"] == {"committed": 10, "planned": 10, "not_known": None}

    def test_both_dangers_of_foreach_batch_are_named_with_the_batches(self, bare: SimulatedJob) -> None:
        taken = saved(bare)
        bare.run(6)
        message = said(bare, taken)
        assert "It was sent batches 5 to 10 after the savepoint's batch 4" in message
        assert "repeated" in message and "skipped for good" in message
        assert planned(bare, taken).possible_choices.sink == ("accept",)

    def test_a_sink_that_remembers_batch_ids_skips(self, bare: SimulatedJob) -> None:
        taken = saved(bare, DELTA)
        bare.run(1)
        message = said(bare, taken)
        assert "regards batch 5 as done" in message and "skipped for good" in message
        assert "repeated" not in message

    def test_a_fork_repeats(self, bare: SimulatedJob) -> None:
        taken = saved(bare, DELTA)
        bare.run(2)
        message = said(bare, taken, mode="fork")
        assert "rows of batches 5 to 6 are repeated" in message and "skipped" not in message
        plan = planned(bare, taken, mode="fork", sink="accept")
        assert plan.possible and any("The fork writes to" in warning for warning in plan.warnings)

    @pytest.mark.parametrize("sink", [CONSOLE, "MemorySink", "NoopTable"])
    def test_a_sink_that_keeps_nothing_is_only_named(self, bare: SimulatedJob, sink: str) -> None:
        taken = saved(bare, sink)
        bare.run(2)
        plan = planned(bare, taken)
        assert plan.possible and "keeps nothing" in plan.sink_effect()
        assert taken.warnings == ()

    def test_at_the_newest_batch_nothing_is_refused(self, bare: SimulatedJob) -> None:
        taken = saved(bare)
        report = bare.restore(taken.savepoint)
        assert "was sent nothing after the savepoint" in report.sink_effect

    def test_a_batch_that_was_begun_may_have_reached_the_sink(self, bare: SimulatedJob) -> None:
        taken = saved(bare)
        bare.live.plan()
        assert "Batch 5 was begun after the savepoint's batch 4" in said(bare, taken)

    def test_a_batch_begun_after_later_ones_is_told_apart(self, bare: SimulatedJob) -> None:
        taken = saved(bare)
        bare.run(2).live.plan()
        assert "batches 5 to 7" in said(bare, taken)
        assert "(batch 7 was begun, and not committed)" in said(bare, taken)

    def test_rollback_covers_no_unguarded_sink(self, tmp_path: Path) -> None:
        shop = SimulatedJob(tmp_path).run(5)
        sinks = [FileSinkCapture(shop.sink_store.uri, shop.sink_store), *sinks_from_descriptions([FOREACH])]
        taken = take(TakeRequest(shop.checkpoint, shop.repository, JOB, sinks=sinks))
        shop.run(1)
        plan = planned(shop, taken, sink="rollback")
        (refusal,) = plan.refusals
        assert refusal.code == "sink-not-guarded" and "It cannot be rolled back" in refusal.message
        assert FOREACH in refusal.hint and shop.sink_store.uri in refusal.hint
        assert plan.possible_choices.sink == ("accept",)

    def test_what_moves_on_during_the_restore_is_seen(
        self, bare: SimulatedJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = saved(bare)

        def look_and_go_on(*args: object) -> Prepared:
            found = prepare(*args)  # type: ignore[arg-type]  # passed on
            bare.run(1)
            return found

        monkeypatch.setattr(restoring, "prepare", look_and_go_on)
        with refuses(RefusedError, "sink-not-guarded"):
            bare.restore(taken.savepoint)
        assert not bare.open("restored").exists("metadata")


class TestNoSinkNamed:
    def test_at_the_newest_batch_that_is_said(self, bare: SimulatedJob) -> None:
        report = bare.restore(take(TakeRequest(bare.checkpoint, bare.repository, JOB)).savepoint)
        assert "has not gone on after it" in report.sink_effect

    def test_a_sink_that_the_jobs_driver_told_of_counts(self, managed: SimulatedJob) -> None:
        taken = take(TakeRequest(managed.checkpoint, managed.repository, JOB))
        managed.run(3)
        message = said(managed, taken, generation=managed.control())
        assert "the savepoint does not name it" in message and "batches 5 to 7" in message

    def test_a_sink_of_another_query_id_does_not(self, managed: SimulatedJob) -> None:
        managed.control().record_query(None, {"query_id": "another", "sink": FOREACH})
        taken = take(TakeRequest(managed.checkpoint, managed.repository, JOB))
        managed.run(3)
        (refusal,) = planned(managed, taken, generation=managed.control()).refusals
        assert refusal.code == "no-sink-known"  # what that query writes to is not known

    def test_a_sink_that_the_application_has_now_counts(self, managed: SimulatedJob) -> None:
        taken = saved(managed, "MemorySink")
        managed.run(3)
        assert "does not name it" in said(managed, taken, generation=managed.control())


class TestHowFar:
    def test_a_generation_before_counts(self, managed: SimulatedJob) -> None:
        old = saved(managed)
        managed.run(6)
        next_generation(managed, old, sink="accept")
        live = going_on(managed, 3)
        newer = saved(managed, checkpoint=live.store)
        assert newer.batch == 7
        message = said(managed, newer, generation=managed.control())
        assert "batches 8 to 10" in message

    def test_a_generation_before_counts_when_its_directory_is_gone(self, managed: SimulatedJob) -> None:
        old = saved(managed)
        managed.run(6)
        next_generation(managed, old, sink="accept")
        live = going_on(managed, 3)
        wipe(managed.checkpoint)
        newer = saved(managed, checkpoint=live.store)
        assert "batches 8 to 10" in said(managed, newer, generation=managed.control())

    def test_an_exchange_of_state_goes_on_where_the_query_stands(self, managed: SimulatedJob) -> None:
        old = saved(managed)
        managed.run(6)
        next_generation(managed, old, sink="accept")
        newer = saved(managed, checkpoint=going_on(managed, 3).store)
        assert next_generation(managed, newer, unmoved=True).plan.generation == 3

    def test_of_a_lost_checkpoint_the_progress_records_tell(self, managed: SimulatedJob) -> None:
        taken = saved(managed)
        progress(managed.control(), managed.live.query_id, 9)
        wipe(managed.checkpoint)
        assert "batches 5 to 9" in said(managed, taken, generation=managed.control())

    def test_a_job_that_was_never_started_goes_by_the_savepoints_checkpoint(self, bare: SimulatedJob) -> None:
        taken = saved(bare)
        declared = bare.open("declared").uri
        assert planned(bare, taken, generation=bare.control(), checkpoint=declared).possible
        bare.run(1)
        assert "batch 5 after" in said(bare, taken, generation=bare.control(), checkpoint=declared)

    def test_records_of_another_query_id_do_not(self, managed: SimulatedJob) -> None:
        taken = saved(managed)
        progress(managed.control(), "another", 90)
        assert planned(managed, taken, generation=managed.control()).possible

    def test_of_a_lost_checkpoint_newer_savepoints_tell(self, managed: SimulatedJob) -> None:
        taken = saved(managed)
        saved(managed.run(2))
        wipe(managed.checkpoint)
        assert "batches 5 to 6" in said(managed, taken, generation=managed.control())

    def test_a_lost_checkpoint_may_have_gone_on(self, managed: SimulatedJob) -> None:
        taken = saved(managed)
        wipe(managed.checkpoint)
        message = said(managed, taken, generation=managed.control())
        assert "is not known" in message and managed.checkpoint.uri in message

    def test_a_lost_checkpoint_of_a_job_that_was_stopped_has_not(self, managed: SimulatedJob) -> None:
        taken = saved(managed)
        managed.control().record_event("stopped", how="boundary", batches={"main": 4})
        wipe(managed.checkpoint)
        assert planned(managed, taken, generation=managed.control()).possible

    @pytest.mark.parametrize("how", ["forced", "killed", "dead"])
    def test_unless_a_batch_was_abandoned(self, managed: SimulatedJob, how: str) -> None:
        taken = saved(managed)
        managed.control().record_event("stopped", how=how, batches={"main": 4})
        wipe(managed.checkpoint)
        assert "is not known" in said(managed, taken, generation=managed.control())

    def test_a_stop_before_the_newest_start_proves_nothing(self, managed: SimulatedJob) -> None:
        taken, control = saved(managed), managed.control()
        control.record_event("stopped", how="boundary", batches={"main": 4})
        control.record_event("query-started", query="main", query_id=managed.live.query_id)
        wipe(managed.checkpoint)
        assert "is not known" in said(managed, taken, generation=control)

    def test_a_bare_checkpoint_that_is_gone_tells_nothing(self, bare: SimulatedJob) -> None:
        taken = saved(bare)
        wipe(bare.checkpoint)
        assert "is not known" in said(bare, taken)

    def test_a_new_query_in_its_place_tells_nothing(self, bare: SimulatedJob) -> None:
        taken = saved(bare)
        wipe(bare.checkpoint)
        LiveCheckpoint(bare.checkpoint).run(3)
        assert "is not known" in said(bare, taken)

    def test_records_that_the_savepoint_names_are_asked(self, managed: SimulatedJob) -> None:
        """The repository moved; the job's records stayed, and know a newer generation."""
        taken = saved(managed)
        next_generation(managed, taken)
        going_on(managed, 3)
        wipe(managed.checkpoint)
        elsewhere = JobControl(managed.open("nowhere"), JOB)
        assert "batches 5 to 7" in said(managed, taken, control=elsewhere)

    def test_records_that_are_lost_or_never_were_leave_it_unknown(self, managed: SimulatedJob) -> None:
        taken = saved(managed)
        wipe(managed.control().store)
        message = said(managed, taken, generation=managed.control())
        assert f"no start of the query is recorded at {managed.control().store.uri}" in message

    def test_damaged_records_leave_it_unknown(self, managed: SimulatedJob) -> None:
        taken = saved(managed)
        managed.control().store.write("queries/main/0000000001.json", b"{")
        assert planned(managed, taken).possible, "the savepoint itself names the sink"
        managed.control().store.write("generation/main/0000000001.json", b"{")
        assert "is not known" in said(managed, taken)


class TestTake:
    def test_a_sink_that_is_not_guarded_is_said_once(self, bare: SimulatedJob) -> None:
        (warning,) = saved(bare).warnings
        assert "ForeachBatchSink is not guarded" in warning and "--sink accept" in warning
        assert "skipped for good" in warning
        assert saved(bare.run(1)).warnings == ()

    def test_another_sink_is_said_again(self, bare: SimulatedJob) -> None:
        saved(bare)
        (warning,) = saved(bare.run(1), DELTA).warnings
        assert "skips the batches whose ids it remembers" in warning


@pytest.mark.parametrize(
    ("sink", "harm", "name"),
    [
        (FOREACH, "unknown", FOREACH),
        (FOREACH_WRITER, "unknown", "ForeachWriterTable"),
        (DELTA, "skipped", DELTA),
        ("HoodieStreamingSink[/t]", "skipped", "HoodieStreamingSink[/t]"),
        ("lake.db.Orders", "unknown", "lake.db.Orders"),
        ("console.db.orders", "unknown", "console.db.orders"),
        ("kafka_orders", "unknown", "kafka_orders"),
        ("org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable", "repeated", KAFKA),
        (CONSOLE, "none", "ConsoleTable"),
        ("MemorySink", "none", "MemorySink"),
        ("NoopTable", "none", "NoopTable"),
    ],
)
def test_what_sinks_do_with_batches_that_they_know(sink: str, harm: str, name: str) -> None:
    (capture,) = sinks_from_descriptions([sink])
    assert harm_of(capture.kind) == harm
    assert sink_name(capture.kind, capture.path) == name


def progress(control: JobControl, query_id: str, batch: int) -> None:
    writer = ProgressWriter(control.store, None, epoch=1)
    writer.add(json.dumps({"id": query_id, "runId": "r", "batchId": batch, "durationMs": {"addBatch": 1}}))
    writer.flush()


@pytest.mark.parametrize(
    ("reached", "choice", "codes"),
    [
        (Reached(10, 10), "refuse", ["sink-not-guarded"]),
        (Reached(10, 10), "rollback", ["sink-not-guarded"]),
        (Reached(10, 10), "accept", []),
        (Reached(4, 5), "refuse", ["sink-not-guarded"]),
        (Reached(4, 4, "its checkpoint is gone"), "refuse", ["sink-not-guarded"]),
        (Reached(4, 4), "refuse", []),
        (None, "refuse", []),
    ],
)
def test_a_kafka_sink_that_never_tells_is_like_any_other(
    reached: Reached | None, choice: SinkChoice, codes: list[str]
) -> None:
    sink = KafkaSinkStanding("kafka://k:9092/rows", 4, never_known="Each row names its own topic.")
    assert [one.code for one in kafka_refusals([sink], choice, "no-claim", reached)] == codes
