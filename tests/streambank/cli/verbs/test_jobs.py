"""The verbs on declared jobs, with a driver that has no Spark in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.control.progress import ProgressWriter, last_progress
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.sla.skew.traffic import BatchSample, Traffic
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.checkpoint.recorded import unpack
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import end_drivers, fake_launcher, write_jobs


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    file = write_jobs(tmp_path)
    monkeypatch.setenv("STREAMBANK_JOBS", str(file))
    for module in ("start", "stop", "status"):
        monkeypatch.setattr(f"streambank.job.{module}.launcher_for", lambda job: fake_launcher(tmp_path))
    job = load_jobs(file).job("flights")
    yield job
    end_drivers(job.records())


def test_a_watcher_that_is_due_is_neither_there_nor_missing(job: Job) -> None:
    records = job.records()
    by = {"dag_id": "flights.restore"}
    begun = records.set_desired("running", by=by)
    assert "not yet" in succeed("job", "list").out
    assert "not yet: a watcher is due" in succeed("job", "status", "flights").out
    watcher = records.watches.begin(by={"dag_id": "flights.run", "run_id": "manual__1"}, desired=begun.number)
    assert "by run manual__1 of flights.run, seen at" in succeed("job", "status", "flights").out
    records.watches.end(watcher, "failed", "its records are lost")
    assert "no, so nothing would restart it: Its watcher" in succeed("job", "status", "flights").out


@pytest.mark.usefixtures("job")
def test_what_is_waited_for_is_shown_beside_the_answer() -> None:
    answer = succeed("job", "start", "flights", "--json")
    assert answer.document["state"] == "started"
    launched, waits, *_ = answer.err.splitlines()
    assert launched.startswith("The driver of job flights was launched: launch-")
    assert waits == "The driver of job flights is starting ..."


def test_hot_keys_of_the_last_progress_are_in_the_status_and_in_skew(job: Job, tmp_path: Path) -> None:
    control = job.records()
    assert succeed("job", "status", "flights", "--json").document["queries"]["main"]["hot_keys"] is None
    unpack("4.3.0/rocksdb-window", tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "flights")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "flights").rename(tmp_path / "checkpoints/flights")
    assert succeed("skew", "--job", "flights", "--json").document["traffic"] is None
    assert "the job's table hot_keys has it sampled" in succeed("skew", "--job", "flights").out

    points = [
        {"operator": 0, "name": "Aggregate", "by": ["user"]},
        {"operator": 1, "name": "Join", "by": [], "why": "two sides"},
    ]
    traffic = Traffic(points, sample=1.0, window_s=600, max_keys=2, salted=None, clock_s=lambda: 0.0)
    traffic.add({0: BatchSample(1000, 1000, 100, [7 << 40] * 200 + list(range(300)))})
    measured = traffic.describe({0: 4})
    writer = ProgressWriter(control.store, None, epoch=1)
    writer.add({"runId": "r", "batchId": 7, "durationMs": {"addBatch": 1}}, measured)
    writer.flush()

    found = succeed("job", "status", "flights", "--json").document["queries"]["main"]["hot_keys"]
    written = last_progress(control.store)
    assert written is not None
    assert found == {"at": to_json_time(written.at), "batch": 7, "current": True, **measured}
    text = succeed("job", "status", "flights").out
    said = re.search(r"^traffic of main by key, as of (\S+) \(batch 7\), \d+ s ago:$", text, re.MULTILINE)
    assert said is not None and said[1] == found["at"]
    assert "operator 0 (Aggregate): The largest key has 40 % (39.8 % to 40.2 %)" in text
    assert "operator 1 (Join): not measured, because two sides" in text
    document = succeed("skew", "--job", "flights", "--json").document
    assert (document["batch"], document["traffic"]["batch"]) == (7, 7)
    assert document["traffic"] == found
    text = succeed("skew", "--job", "flights").out
    assert "store default: 1.23 times the mean" in text
    row = text.splitlines()[-1].split()
    assert row == ["40.00", "%", "39.76", "to", "40.24", "%", "39.8", "0", f"{7 << 40:013x}"]

    for _ in range(2):  # the first is epoch 1, as that of the record
        assert succeed("skew", "--job", "flights", "--json").document["traffic"]["current"]
        with control.lease.held("restore", by={"user": "test"}):
            pass
    assert not succeed("skew", "--job", "flights", "--json").document["traffic"]["current"]
    for said_of in (("job", "status", "flights"), ("skew", "--job", "flights")):
        assert "ago, before the job was last started or restored:" in succeed(*said_of).out


def test_the_status_of_a_job_whose_checkpoint_is_lost_does_not_end_well(job: Job, tmp_path: Path) -> None:
    LiveCheckpoint(open_store(job.checkpoint)).run(2)
    job.records().generations().ensure_first(job.checkpoint, by={"user": "test"})
    job.records().record_query(None, {"generation": 1, "query_id": "q"})
    assert streambank("job", "status", "flights").code == 0
    (tmp_path / "checkpoints/flights").rename(tmp_path / "gone")
    answer = streambank("job", "status", "flights")
    assert (answer.code, answer.out.partition(" (")[0]) == (1, "job flights: checkpoint-lost")


@pytest.mark.usefixtures("job")
def test_a_job_is_started_once_looked_at_and_stopped() -> None:
    assert succeed("job", "status", "flights", "--json").document["state"] == "never-started"
    started = succeed("job", "start", "flights", "--why", "a test", "--json").document
    assert (started["state"], started["batch"]) == ("started", 0)
    again = succeed("job", "start", "flights")
    assert again.out.startswith("job flights was running already: first batch committed\n")
    assert str(started["pid"]) in again.out

    found = succeed("job", "status", "flights", "--json").document
    assert (found["state"], found["desired"], found["pid"]) == ("running", "running", started["pid"])
    text = succeed("job", "status", "flights").out
    assert "job flights: running" in text and "main" in text

    restarted = succeed("job", "restart", "flights", "--why", "new code", "--json").document
    assert (restarted["state"], restarted["how"], restarted["stopped_epoch"]) == ("restarted", "boundary", 1)
    assert restarted["pid"] != started["pid"]

    refused = streambank("job", "break", "flights", "--why", "a mistake")
    assert refused.code == 8 and "is held by" in refused.err

    stopped = succeed("job", "stop", "flights", "--force-after", "5s", "--json").document
    assert (stopped["state"], stopped["how"]) == ("stopped", "boundary")
    assert "already stopped" in succeed("job", "stop", "flights").out
    assert "so nothing was started" in succeed("job", "restart", "flights").out
    nothing = succeed("job", "break", "flights", "--operation", "--why", "a test", "--json").document
    assert nothing["broken"] is False


@pytest.mark.usefixtures("job")
def test_a_start_that_does_not_wait_says_that_the_driver_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambank.job.start.query_starts", lambda *_: {"main": "not-started"})
    out = succeed("job", "start", "flights", "--no-wait").out
    assert out.startswith("job flights has its driver up: no query started\n")


@pytest.mark.usefixtures("job")
def test_all_jobs_at_a_glance_and_what_happened_to_one(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = succeed("job", "list", "--json").document
    assert (found["job"], found["state"]) == ("flights", "never-started")
    assert succeed("job", "history", "flights").out == "Nothing has happened to job flights yet.\n"
    succeed("job", "start", "flights", "--why", "monday")
    text = succeed("job", "list").out
    assert text.splitlines()[0].split()[:4] == ["job", "desired", "state", "batch"]
    assert text.splitlines()[1].split()[:4] == ["flights", "running", "running", "0"]
    succeed("job", "stop", "flights")
    shown = succeed("job", "history", "flights").out
    assert "desired running" in shown and "monday" in shown and "driver started" in shown
    assert len(succeed("job", "history", "flights", "--last", "2", "--json").document) == 2
    assert streambank("job", "history", "nosuch").code == 3


def test_a_job_that_cannot_be_read_hides_no_other(job: Job, tmp_path: Path) -> None:
    text = (tmp_path / "streaming_jobs.toml").read_text(encoding="utf-8")
    again = text[text.index("[jobs.flights") :].replace("jobs.flights", "jobs.trains")
    (tmp_path / "streaming_jobs.toml").write_text(
        text + "\n" + again.replace("checkpoints/flights", "checkpoints/trains")
    )
    records = job.records()
    records.desired_records.append({"state": "dancing"})
    found = succeed("job", "list", "--json").document
    assert {one["job"]: one["state"] for one in found} == {"flights": "unreadable", "trains": "never-started"}


def test_who_triggered_a_dag_is_named_and_not_the_account_of_the_worker(job: Job) -> None:
    by = {
        "user": "airflow",
        "host": "worker",
        "via": "airflow",
        "triggered_by": "ann",
        "dag_id": "flights.stop",
    }
    job.records().set_desired("stopped", by=by, why="night")
    assert "stopped, set by ann by flights.stop at" in succeed("job", "status", "flights").out


def test_a_savepoint_of_a_job_and_its_next_generation(job: Job) -> None:
    LiveCheckpoint(open_store(job.checkpoint)).run(5)
    taken = succeed("job", "savepoint", "flights", "--note", "by job", "--pin", "--json").document
    assert (taken["batch"], taken["job"]) == (4, "flights")
    assert "It was there already" in succeed("job", "savepoint", "flights").out
    arguments = ("latest-good", "-r", job.repository, "--job", "flights", "--generation", "--sink", "accept")
    plan = succeed("restore", *arguments, "--dry-run")
    assert "would restore savepoint" in plan.out and "generation 2: " in plan.out
    restored = succeed("restore", *arguments, "--json").document
    assert restored["generation"] == 2
    assert restored["location"] == f"{job.checkpoint}.g0002"
    current = job.records().generation()
    assert current is not None and current.location == restored["location"]


def test_a_managed_checkpoint_tells_its_sinks_to_take(job: Job, tmp_path: Path) -> None:
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    records = job.records()
    records.generations().ensure_first(job.checkpoint, by={"user": "test"})
    records.record_query(None, {"sink": "ForeachBatchSink", "spark_version": "4.3.0"})
    taken = succeed("take", job.checkpoint, "-r", job.repository, "--job", "flights", "--json").document
    shown = succeed("show", taken["savepoint"], "-r", job.repository, "--json").document
    assert [(sink["kind"], sink["guarded"]) for sink in shown["sinks"]] == [("ForeachBatchSink", False)]
    assert shown["spark_version"] == "4.3.0"
    assert "not guarded" in succeed("show", taken["savepoint"], "-r", job.repository).out


def test_a_managed_checkpoint_tells_them_by_whichever_name_it_is_reached(job: Job, tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(job.checkpoint)).run(3)
    records = job.records()
    records.generations().ensure_first(job.checkpoint, by={"user": "test"})
    records.record_query(None, {"sink": "ForeachBatchSink", "query_id": live.query_id})
    (tmp_path / "link").symlink_to(job.checkpoint.removeprefix("file://"))
    asked = (str(tmp_path / "link"), "-r", job.repository, "--job", "flights")
    taken = succeed("take", *asked, "--json").document
    shown = succeed("show", taken["savepoint"], "-r", job.repository, "--json").document
    assert [sink["kind"] for sink in shown["sinks"]] == ["ForeachBatchSink"]
    refused = streambank("import", *asked)
    assert refused.code == 2 and "is the checkpoint in which the query works" in refused.err


def test_a_sink_that_is_not_guarded_from_take_to_restore(job: Job, tmp_path: Path) -> None:
    live = LiveCheckpoint(open_store(job.checkpoint)).run(3)
    records = job.records()
    records.generations().ensure_first(job.checkpoint, by={"user": "test"})
    records.record_query(None, {"query_id": live.query_id, "sink": "ForeachBatchSink"})
    taken = succeed("job", "savepoint", "flights")
    assert "warning: The sink ForeachBatchSink is not guarded" in taken.out
    live.run(6)
    stopped = succeed("job", "stop", "flights", "--savepoint", "--json").document
    assert stopped["warnings"] == [], "it was said before"
    arguments = ("restore", "b000002", "-r", job.repository, "--generation")
    refused = streambank(*arguments)
    assert refused.code == 8 and "batches 3 to 8" in refused.err and "--sink accept" in refused.err
    done = succeed(*arguments, "--sink", "accept").out
    assert "It was sent batches 3 to 8 after the savepoint's batch 2" in done
    assert "skipped for good" in done and "This was accepted." in done
    again = streambank("restore", "b000008", "-r", job.repository, "--into", tmp_path / "other")
    assert again.code == 0 and "was sent nothing after the savepoint" in again.out


@pytest.mark.usefixtures("job")
def test_what_is_not_declared_is_exit_code_3_and_no_jobs_file_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = streambank("job", "status", "nothing")
    assert answer.code == 3 and "hint: Declared: flights." in answer.err
    assert "hint: Did you mean flights? Declared: flights." in streambank("job", "status", "fligths").err
    assert streambank("job", "status", "flights", "--jobs", tmp_path / "none.toml").code == 2
    monkeypatch.delenv("STREAMBANK_JOBS")
    assert streambank("job", "status", "flights").code == 2


@pytest.mark.usefixtures("job")
def test_a_duration_without_a_unit_is_a_mistake_in_the_arguments() -> None:
    answer = streambank("job", "stop", "flights", "--force-after", "60")
    assert answer.code == 2 and "'60' is not a duration." in answer.err


def test_without_a_jobs_file_the_hint_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMBANK_JOBS", raising=False)
    monkeypatch.chdir(tmp_path)
    for here in ("", ", such as the streaming_jobs.toml in this directory"):
        answer = streambank("job", "status", "orders", "--json")
        assert (answer.code, answer.document["error"]) == (2, "usage")
        assert answer.document["hint"] == f"Name the jobs file{here}, by --jobs or by STREAMBANK_JOBS."
        (tmp_path / "streaming_jobs.toml").touch()
