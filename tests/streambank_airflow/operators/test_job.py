from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.timezone import utcnow

from streambank.driver.failure import DriverFailure, shown
from streambank.job.savepoint import savepoint_job
from streambank_airflow.hooks.jobs import DriverLog
from streambank_airflow.operators.driver import DRIVER_LOG_KEY
from streambank_airflow.operators.job import (
    KeepStreamingJobRunningOperator,
    RestartStreamingJobOperator,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
)
from tests.support.airflow_face.metadata_db import asset_events, one_task, run_dag, task_states, xcom
from tests.support.jobs.managed_job import BY, Managed, meanwhile
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
def test_a_start_returns_when_a_batch_is_committed_and_is_idempotent(
    managed: Managed, deferrable: bool
) -> None:
    dag = one_task(StartStreamingJobOperator, managed, deferrable=deferrable, note="for a test")

    first = run_dag(dag)
    second = run_dag(dag)

    result = xcom(first, "task")
    assert result["state"] == "started"
    assert result["batch"] >= 0
    assert result["pid"] > 0
    assert not [value for value in result.values() if isinstance(value, dict | list)]
    again = xcom(second, "task")
    assert again["state"] == "already-running"
    assert {again[key] == result[key] for key in ("epoch", "launch_id", "pid")} == {True}
    desired = managed.desired
    assert (desired.state, desired.why) == ("running", "for a test")
    assert desired.by["dag_id"] == "one_task"
    assert desired.by["triggered_by"] == "dag_test"


def test_a_good_start_says_batch_time_and_log_and_copies_nothing(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_dag(one_task(StartStreamingJobOperator, managed))

    assert xcom(run, "task", DRIVER_LOG_KEY) == "", "a button would lead to the page on which it stands"
    said = capfd.readouterr().out
    assert re.search(
        r"Job flights runs: first batch committed; batch \d+, after [\d.]+ m?s\. The driver's log: \S+\.log",
        said,
    ), said
    assert "driver |" not in said


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
def test_a_driver_that_dies_at_once_fails_the_start_with_its_last_lines(
    managed: Managed, deferrable: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.dies.write_text("0")

    run = run_dag(one_task(StartStreamingJobOperator, managed, deferrable=deferrable))

    assert task_states(run) == {"task": "failed"}
    assert "driver | it does not feel well" in capfd.readouterr().out


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
def test_a_drivers_death_begins_with_its_cause(
    managed: Managed, deferrable: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.dies.write_text("0")
    frames = "|".join(f"\tat org.apache.hadoop.Frame.f{n}(Frame.java)" for n in range(60))
    failure = f"java.io.IOException: the disk is full|password=planted-77 jdbc:x://u:planted-77@h/|{frames}"
    words = f"26/11/24 07:00:00 INFO Main: up|{failure}|26/11/24 07:00:00 INFO Shutdown: over"
    declared = managed.jobs_file.read_text()
    managed.jobs_file.write_text(
        declared.replace("args = [", f'args = ["--last-words", {json.dumps(words)}, ')
    )

    run = run_dag(one_task(StartStreamingJobOperator, managed, deferrable=deferrable))

    assert task_states(run) == {"task": "failed"}
    said = capfd.readouterr().out.splitlines()
    mine = [line for line in said if "driver |" in line or "The driver failed:" in line]
    assert "The driver failed: java.io.IOException: the disk is full" in mine[0]
    assert "driver | java.io.IOException: the disk is full" in mine[1]
    assert "57 more" in mine[-1]
    assert "f50" not in "".join(mine)
    assert "password=***" in "".join(mine) and "planted-77" not in "".join(said), "a log that many may read"


def test_a_stop_that_came_after_the_run_was_asked_for_counts(managed: Managed) -> None:
    managed.control.set_desired("stopped", by={"user": "somebody"})

    run = run_dag(one_task(StartStreamingJobOperator, managed), run_after=utcnow() - timedelta(minutes=5))

    assert task_states(run) == {"task": "skipped"}
    assert managed.control.lease.view() is None


def test_a_stop_that_came_before_is_undone_by_whoever_asks_for_a_start(managed: Managed) -> None:
    managed.control.set_desired("stopped", by={"user": "somebody"})

    run = run_dag(one_task(StartStreamingJobOperator, managed))

    assert task_states(run) == {"task": "success"}


def test_a_start_may_depend_on_a_forms_answer(managed: Managed) -> None:
    dag = one_task(StartStreamingJobOperator, managed, only_if="{{ dag_run.conf['start'] }}")

    assert task_states(run_dag(dag, run_conf={"start": False})) == {"task": "skipped"}
    assert managed.control.desired() is None


def test_it_is_kept_running_until_somebody_stops_it(managed: Managed) -> None:
    dag = one_task(KeepStreamingJobRunningOperator, managed, poll_interval_s=0.1, backoff_s=0.1)
    with meanwhile(
        managed,
        lambda: managed.wait_for_batch(2),
        managed.kill,
        lambda: poll(lambda: len(managed.control.lease.recent_launches()) == 2, timeout_s=60),
        lambda: managed.wait_for_batch(managed.last_batch() + 3),
        lambda: managed.stop("enough"),
    ):
        run = run_dag(dag)

    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert (result["state"], result["restarts"]) == ("stopped", 1)
    assert "enough" in result["why"]
    assert not managed.driver_lives()


def test_a_job_that_was_stopped_in_between_is_not_started_by_who_keeps_it_running(managed: Managed) -> None:
    managed.control.set_desired("stopped", by={"user": "somebody", "host": "here"}, why="maintenance")

    run = run_dag(one_task(KeepStreamingJobRunningOperator, managed))

    assert xcom(run, "task")["why"] == "stopped by somebody on here: maintenance"
    assert managed.control.lease.view() is None


@pytest.mark.storm
def test_drivers_that_never_get_on_end_in_a_failure(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    managed.wait_for_batch(0)
    managed.dies.write_text("0")
    dag = one_task(KeepStreamingJobRunningOperator, managed, poll_interval_s=0.1, backoff_s=0.1)

    run = run_dag(dag)

    assert task_states(run) == {"task": "failed"}
    assert "3 drivers of job flights in a row ended without a new batch" in capfd.readouterr().out


@pytest.mark.storm
def test_nothing_is_started_while_a_restore_has_the_job(managed: Managed) -> None:
    seen: list[Any] = []

    def restore() -> None:
        managed.wait_for_batch(1)
        with managed.control.operation("restore", by={"user": "somebody"}, wait_s=30):
            managed.kill()
            threading.Event().wait(1.0)
            seen.append(len(managed.control.lease.recent_launches()))
        poll(lambda: len(managed.control.lease.recent_launches()) == 2, timeout_s=60)
        managed.wait_for_batch(managed.last_batch() + 3)
        managed.stop()

    with meanwhile(managed, restore):
        run = run_dag(one_task(KeepStreamingJobRunningOperator, managed, poll_interval_s=0.1, backoff_s=0.1))

    assert seen == [1]
    assert xcom(run, "task")["restarts"] == 1


def test_a_job_whose_checkpoint_is_gone_is_left_to_a_restore(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    import shutil

    managed.start()
    managed.wait_for_batch(1)
    poll(lambda: managed.control.query_facts() is not None)
    managed.kill()
    shutil.rmtree(managed.checkpoint)

    run = run_dag(one_task(KeepStreamingJobRunningOperator, managed, retries=3))

    assert task_states(run) == {"task": "failed"}
    out = capfd.readouterr().out
    assert "checkpoint-lost" in out
    assert "Restore a savepoint: run RestoreSavepointOperator." in out


def test_a_stop_is_at_a_batch_boundary_and_takes_a_savepoint_where_wanted(managed: Managed) -> None:
    managed.start()
    before = len(asset_events())

    run = run_dag(one_task(StopStreamingJobOperator, managed, savepoint=True, note="the end"))

    result = xcom(run, "task")
    assert (result["state"], result["how"]) == ("stopped", "boundary")
    (summary,) = managed.repository.manifests("flights")
    assert summary.savepoint == result["savepoint"]
    assert (summary.batch, summary.note) == (result["batch"], "the end")
    assert asset_events()[before:] == [
        {"savepoint": result["savepoint"], "job": "flights", "batch": result["batch"]}
    ]


@pytest.mark.storm
def test_a_stop_without_a_savepoint_is_no_event_of_the_asset(managed: Managed) -> None:
    managed.start()
    before = len(asset_events())

    assert task_states(run_dag(one_task(StopStreamingJobOperator, managed))) == {"task": "success"}

    assert len(asset_events()) == before


def test_a_stop_of_a_stopped_job_is_a_clear_answer(managed: Managed) -> None:
    run = run_dag(one_task(StopStreamingJobOperator, managed))

    assert xcom(run, "task")["state"] == "already-stopped"
    assert managed.desired.state == "stopped"


@pytest.mark.storm
def test_a_stop_may_be_told_to_touch_no_job_that_lives(managed: Managed) -> None:
    managed.start()

    run = run_dag(one_task(StopStreamingJobOperator, managed, if_running="refuse", retries=3))

    assert task_states(run) == {"task": "failed"}
    assert managed.driver_lives()


def test_an_unknown_job_fails_for_good(managed: Managed, capfd: pytest.CaptureFixture[str]) -> None:
    with DAG("one_task", schedule=None) as dag:
        StartStreamingJobOperator(task_id="task", job="trains", jobs_file=str(managed.jobs_file), retries=3)

    run = run_dag(dag)

    assert task_states(run) == {"task": "failed"}
    assert "Hint: Declared: flights." in capfd.readouterr().out


@pytest.mark.parametrize(("own", "way"), [(False, "flights.restore"), (True, "RestoreSavepointOperator")])
def test_the_way_out_behind_the_cause_of_a_death_is_one_that_there_is(
    monkeypatch: pytest.MonkeyPatch, own: bool, way: str
) -> None:
    said = shown('Some data may have been missed. Set "failOnDataLoss" to "false".')
    log = DriverLog("/d.log", DriverFailure(said.replace("<job>", "flights")))
    start = StartStreamingJobOperator(task_id="start", job="flights/main")
    start.__dict__["hook"] = SimpleNamespace(jobs=SimpleNamespace(driver_log=lambda ref: log))
    monkeypatch.setattr("streambank_airflow.hints.is_own_dag", lambda dag: own)

    assert f"see what is missing in the plan of {way}, and" in start.show_driver_failure()


# What no further start repairs is not tried again: it fails at once, and names the savepoint to restore.


dag_of = partial(one_task, retry_delay=timedelta(0), retry_exponential_backoff=False)


@pytest.mark.parametrize("task", [StartStreamingJobOperator, KeepStreamingJobRunningOperator])
def test_a_damaged_checkpoint_is_not_tried_again(
    managed: Managed, capfd: pytest.CaptureFixture[str], task: Callable[..., Any]
) -> None:
    managed.start()
    managed.wait_for_batch(2)
    managed.stop()
    newest = max((managed.checkpoint / "state/0/0").glob("*.delta"), key=lambda one: int(one.stem))
    newest.with_suffix(".snapshot").unlink(missing_ok=True)  # beside one, Spark does not read the delta
    (taken,) = savepoint_job(managed.job, by=BY).savepoints.values()
    newest.write_bytes(newest.read_bytes()[:149])
    launched = len(managed.control.lease.recent_launches())
    managed.control.set_desired("running", by=BY)

    run = run_dag(dag_of(task, managed, retries=3))

    assert task_states(run) == {"task": "failed"}
    assert len(managed.control.lease.recent_launches()) == launched
    out = capfd.readouterr().out
    assert f"state/0/0/{newest.name} has 149 bytes" in out
    assert f"Restore {taken.savepoint} (" in out and "run RestoreSavepointOperator" in out
    if task is KeepStreamingJobRunningOperator:
        assert managed.control.last_event("crash-loop") is not None


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
def test_a_start_that_dies_twice_the_same_way_gives_up(
    managed: Managed, capfd: pytest.CaptureFixture[str], deferrable: bool
) -> None:
    managed.dies.write_text("0")

    run = run_dag(dag_of(StartStreamingJobOperator, managed, retries=5, deferrable=deferrable))

    assert task_states(run) == {"task": "failed"}
    assert len(list(managed.control.store.names("launches"))) == 2
    assert "by the same error: it does not feel well" in capfd.readouterr().out
    event = managed.control.last_event("crash-loop")
    assert event is not None and (event["failures"], event["restarts"]) == (2, 1)


@pytest.mark.storm
def test_a_driver_that_cannot_load_its_state_is_not_replaced(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was started, took the lease, and died of its state while it was watched."""
    managed.start()
    managed.wait_for_batch(1)
    (taken,) = savepoint_job(managed.job, by=BY).savepoints.values()
    launch = managed.control.lease.recent_launches()
    managed.control.record_event(
        "query-ended",
        launch_id=next(iter(launch)),
        failure="[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] Error reading delta file",
    )
    dag = dag_of(KeepStreamingJobRunningOperator, managed, poll_interval_s=0.1, backoff_s=0.1)

    watched = managed.control.watches.view  # there from the first sign on: the task has found the driver
    with meanwhile(managed, lambda: poll(watched, timeout_s=120), managed.kill):
        run = run_dag(dag)

    assert task_states(run) == {"task": "failed"}
    assert len(managed.control.lease.recent_launches()) == 1
    out = capfd.readouterr().out
    assert "state-not-loadable" in out and f"Restore {taken.savepoint} (" in out


def test_a_start_need_not_wait_for_the_first_batch(managed: Managed) -> None:
    managed.hangs.write_text("0")  # it never comes

    run = run_dag(one_task(StartStreamingJobOperator, managed, wait_for_completion="false"))

    assert (task_states(run), xcom(run, "task")["state"]) == ({"task": "success"}, "started")
    assert xcom(run, "task", key="batch") is None
    poll(managed.driver_lives)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_restart_ends_with_what_it_has_started(
    managed: Managed, deferrable: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start(until=1)

    run = run_dag(one_task(RestartStreamingJobOperator, managed, deferrable=deferrable))

    assert xcom(run, "task")["state"] == "restarted"
    (said,) = re.findall(r"Job flights runs[^:]*: [^;]*;", capfd.readouterr().out)
    assert said == "Job flights runs: first batch committed;"
