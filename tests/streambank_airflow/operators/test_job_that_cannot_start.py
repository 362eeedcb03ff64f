"""What no further start repairs is not tried again: it fails at once, and names the savepoint to restore."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from streambank.job.savepoint import savepoint_job
from streambank_airflow.operators.job import KeepStreamingJobRunningOperator, StartStreamingJobOperator
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states
from tests.support.jobs.managed_job import BY, Managed, meanwhile
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")


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
