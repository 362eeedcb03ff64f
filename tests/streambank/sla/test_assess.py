"""A declared job, or a checkpoint, judged in one call."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.core.errors import InputError
from streambank.core.units import utc_now
from streambank.declaration.sla import Declared, Mute, SlaPolicy
from streambank.job.start import start_job
from streambank.kafka.recording import KafkaReader, SourceRecorder
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sla.assess import Assessment, assess_checkpoint, assess_job
from streambank.sla.verdict import Verdict
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare, end_drivers, fake_launcher
from tests.support.kafka.fake_broker import SERVERS, FakeBroker, write_checkpoint
from tests.support.sla.growing_state import grow
from tests.support.waiting import poll


def by_name(found: Assessment, query: str = "main") -> dict[str, Verdict]:
    return {one.objective: one for one in found.verdicts if one.query == query}


def test_a_job_that_never_ran_is_unknown_and_no_breach(tmp_path: Path) -> None:
    found = assess_job(declare(tmp_path))
    assert found.level == "unknown" and by_name(found)["history"].level == "unknown"
    assert found.to_dict()["verdicts"][0]["objective"] == "history"


def test_a_job_whose_driver_was_killed_is_broken_with_nothing_declared(tmp_path: Path) -> None:
    job = declare(tmp_path)
    records = job.records()
    started = start_job(job, by={**BY, "dag_id": "flights.run"}, launcher=fake_launcher(tmp_path))
    try:
        well = assess_job(job)
        assert by_name(well)["alive"].level == by_name(well)["restart_rate"].level == "ok"
        assert (well.to_dict()["up"], well.to_dict()["watched"]) == (True, False)
        unwatched = by_name(assess_job(job, now=utc_now() + timedelta(seconds=job.start.timeout_s + 480)))
        assert unwatched["alive"].level == "breach" and "no watcher to restart it" in unwatched["alive"].why
        assert started.pid is not None
        os.kill(started.pid, signal.SIGKILL)
        poll(lambda: (view := records.lease.view()) is not None and view.state == "dead")
    finally:
        end_drivers(records)

    soon, late = (by_name(assess_job(job, now=utc_now() + timedelta(minutes=n))) for n in (1, 6))

    assert soon["alive"].level == "ok", "another one may come up"
    assert late["alive"].level == "breach" and "No driver lives" in late["alive"].why
    assert late["restart_rate"].value == 1
    records.set_desired("stopped", by=BY)
    assert by_name(assess_job(job, now=utc_now() + timedelta(minutes=6)))["alive"].level == "ok"


def test_a_job_without_records_is_judged_by_its_checkpoint(tmp_path: Path) -> None:
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint), retain=9).run(5)
    verdicts = by_name(assess_job(job))
    assert "5 batches" in verdicts["history"].why and verdicts["state_bytes"].level == "ok"
    assert verdicts["partition_skew"].level == "ok"
    assert by_name(assess_job(job, skew=False))["partition_skew"].level == "unknown"


def test_a_leak_is_foretold_from_records_and_hours_are_kept_for_the_next_time(tmp_path: Path) -> None:
    job = declare(tmp_path, more='[jobs.flights.sla]\nstate_bytes = {breach = "3GB"}\n')
    LiveCheckpoint(open_store(job.checkpoint), retain=9).run(5)
    grow(job, hours=24 * 6, per_hour=1e7)
    now = utc_now()
    first = assess_job(job, now=now)
    verdicts = by_name(first)
    assert verdicts["time_to_limit"].level == "warn" and verdicts["growth"].level == "warn"
    assert verdicts["time_to_limit"].value == pytest.approx((3e9 - 2.44e9) / 1e7 * 3600, rel=0.05)
    assert len(job.records().store.names("sla/hours/main")) >= 6
    again = by_name(assess_job(job, now=now))
    # What a disk has left is of this moment, and this test writes to it.
    assert {name: one for name, one in again.items() if name != "free_space"} == {
        name: one for name, one in verdicts.items() if name != "free_space"
    }


def test_another_moment_than_now_changes_nothing_that_is_kept(tmp_path: Path) -> None:
    job = declare(tmp_path)
    grow(job, hours=48, per_hour=0)
    assess_job(job, now=utc_now() + timedelta(days=3), skew=False)
    assert not job.records().store.names("sla")


def test_a_mute_is_said_and_does_not_count(tmp_path: Path) -> None:
    more = '[jobs.flights.sla.savepoint_age]\nbreach = "1h"\n'
    job = declare(tmp_path, more=more)
    assert assess_job(job).level == "breach"
    (tmp_path / "muted").mkdir()
    mute = 'mute = {until = 2099-01-01T00:00:00Z, why = "moving"}\n'
    muted = assess_job(declare(tmp_path / "muted", more=more + mute))
    assert muted.level == "unknown" and by_name(muted)["savepoint_age"].mute is not None


def test_each_query_has_its_verdicts_and_one_can_be_chosen(tmp_path: Path) -> None:
    job = declare(tmp_path, more='queries = ["left", "right"]\n')
    LiveCheckpoint(open_store(job.queries["left"]), retain=9).run(3)
    found = assess_job(job)
    assert {one.query for one in found.verdicts} == {"left", "right"}
    assert by_name(found, "left")["history"].level == "ok"
    assert {one.query for one in assess_job(job, query="right").verdicts} == {"right"}
    with pytest.raises(InputError, match="no query 'middle'"):
        assess_job(job, query="middle")


def test_records_that_cannot_be_read_are_a_breach_and_end_nothing(tmp_path: Path) -> None:
    job = declare(tmp_path)
    store = job.records().store
    store.write("generation/main/0000000001.json", b"{damaged")
    found = by_name(assess_job(job))
    assert found["history"].level == "breach" and found["state_bytes"].level == "unknown"
    assert found["recovery_time"].level == "ok"


def test_a_lost_checkpoint_is_a_breach_though_there_are_records(tmp_path: Path) -> None:
    job = declare(tmp_path)
    grow(job, hours=2, per_hour=0)
    found = by_name(assess_job(job))
    assert found["history"].level == "breach" and found["state_bytes"].level == "ok"


def test_the_size_of_the_directory_is_looked_at_where_it_is_promised(tmp_path: Path) -> None:
    job = declare(tmp_path, more='[jobs.flights.sla]\ncheckpoint_bytes = {breach = "1kB"}\n')
    LiveCheckpoint(open_store(job.checkpoint), retain=9).run(5)
    grow(job, hours=2, per_hour=0)
    found = by_name(assess_job(job))["checkpoint_bytes"]
    assert found.level == "breach" and (found.value or 0) > 1000


def test_a_checkpoint_alone_is_judged_by_its_files(tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "orders"), retain=9).run(5)
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    found = assess_checkpoint(str(tmp_path / "orders"))
    assert found.job == "orders" and by_name(found)["history"].level == "ok"
    policy = SlaPolicy({"savepoint_age": Declared(breach=3600.0)})
    place, there = str(tmp_path / "orders"), str(tmp_path / "repository")
    alone = assess_checkpoint(place, repository=there, policy=policy)
    assert by_name(alone)["savepoint_age"].level == "breach"
    take(TakeRequest(live.store, repository, "orders/left"))
    found = assess_checkpoint(place, repository=there, name="orders/left", policy=policy)
    assert by_name(found, "left")["savepoint_age"].level == "ok" and found.job == "orders"


def test_a_checkpoint_that_is_not_there_is_a_breach(tmp_path: Path) -> None:
    assert assess_checkpoint(str(tmp_path / "nothing")).level == "breach"
    LiveCheckpoint(open_store(tmp_path / "ck"), retain=9).run(2)
    history = str(tmp_path / "no-records")
    found = assess_checkpoint(str(tmp_path / "ck"), history=history)
    assert found.level == "breach" and "no progress records" in by_name(found)["history"].why


def test_records_beside_a_checkpoint_are_used_where_they_are_named(tmp_path: Path) -> None:
    job = declare(tmp_path)
    LiveCheckpoint(open_store(job.checkpoint), retain=9).run(5)
    grow(job, hours=24, per_hour=5e6)
    folder = f"{job.records().store.uri}/progress/main"
    found = by_name(assess_checkpoint(job.checkpoint, history=folder, name="flights"))
    assert found["history"].why == "The history has 144 batches." and found["growth"].level == "warn"
    policy = SlaPolicy(mute=Mute(utc_now() + timedelta(days=1), "moving"))
    assert assess_checkpoint(job.checkpoint, history=folder, policy=policy).level == "ok"


REPLAYABLE = """
kafka = {bootstrap = "kafka:9092"}

[jobs.flights.sla]
replayable_for = {breach = "12h"}
"""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    fake = FakeBroker()
    fake.put("flights", (0, 150))

    def connect(servers: str, properties: object, timeout_s: float, patience: object) -> FakeBroker:
        assert (servers, timeout_s) == (SERVERS, 5.0)
        return fake

    monkeypatch.setattr("streambank.kafka.client.connect", connect)
    return fake


def test_the_input_of_the_newest_savepoint_is_asked_for_at_the_jobs_brokers(
    tmp_path: Path, broker: FakeBroker
) -> None:
    job = declare(tmp_path, more=REPLAYABLE)
    assert "no savepoint" in by_name(assess_job(job, skew=False))["replayable_for"].why
    assert broker.asked == 0
    checkpoint = open_store(str(write_checkpoint(tmp_path / "checkpoints/flights", '{"flights":{"0":100}}')))
    repository = Repository.open(open_store(job.repository), create=True)
    # The savepoint names other servers than the job: those of the job are asked.
    sources = SourceRecorder(broker.brokers(), [KafkaReader("elsewhere:9092", {"subscribe": "flights"})])
    taken = take(TakeRequest(checkpoint, repository, "flights", sources=sources)).savepoint

    def found() -> Verdict:
        return by_name(assess_job(job, skew=False))["replayable_for"]

    week_ms, now_ms = 7 * 86_400_000, int(utc_now().timestamp() * 1000)
    broker.times_ms["flights", 0] = {100: now_ms - week_ms // 2}
    well = found()
    assert well.level == "ok" and well.value == pytest.approx(week_ms / 2000, abs=60)
    broker.times_ms["flights", 0] = {100: now_ms - week_ms + 3_600_000}
    short = found()
    assert short.level == "breach" and short.subject == "source 0" and taken in short.why
    assert short.since is not None and short.since < short.at
    broker.earliest["flights", 0] = 120
    gone = found()
    assert (gone.level, gone.value) == ("breach", 0.0) and "100 to 120, 20 records: deleted" in gone.why
    broker.down = True
    away = assess_job(job, skew=False)
    assert by_name(away)["replayable_for"].level == "unknown"
    assert "Kafka is down." in by_name(away)["replayable_for"].why
    assert by_name(away)["history"].level != "breach", "brokers that are away end nothing"


def test_without_the_objective_no_broker_is_asked(tmp_path: Path, broker: FakeBroker) -> None:
    job = declare(tmp_path)
    repository = Repository.open(open_store(job.repository), create=True)
    checkpoint = open_store(str(write_checkpoint(tmp_path / "checkpoints/flights", '{"flights":{"0":100}}')))
    sources = SourceRecorder(FakeBroker().brokers(), [KafkaReader(SERVERS, {"subscribe": "flights"})])
    take(TakeRequest(checkpoint, repository, "flights", sources=sources))
    assert "replayable_for" not in by_name(assess_job(job, skew=False))
    assert broker.asked == 0


def test_files_that_were_read_after_the_newest_savepoint_and_are_gone_are_a_breach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.inputs.files._written_ms", lambda uri: None)
    job = declare(tmp_path, more='[jobs.flights.sla]\nreplayable_for = {breach = "12h"}\n')
    live = LiveCheckpoint(open_store(job.checkpoint), retain=9).run(3)
    repository = Repository.open(open_store(job.repository), create=True)
    take(TakeRequest(open_store(job.checkpoint), repository, "flights"))
    found = by_name(assess_job(job, skew=False))["replayable_for"]
    assert found.level == "ok" and "Nothing limits" in found.why
    live.run(2)
    gone = by_name(assess_job(job, skew=False))["replayable_for"]
    assert (gone.level, gone.value) == ("breach", 0.0) and "/in/3.json" in gone.why
