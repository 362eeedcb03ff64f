"""A stream whose task is ended from outside: it runs on or is asked to stop, and that is said."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG, BaseOperator

from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.job import (
    KeepStreamingJobRunningOperator,
    RestartStreamingJobOperator,
    StartStreamingJobOperator,
)
from streambank_airflow.triggers.job import DriverGoneTrigger, DriverTrigger, JobEndTrigger
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states
from tests.support.jobs.managed_job import Managed
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")

RUN = {"dag_id": "own", "run_id": "manual__1", "task_id": "t"}
LAUNCH: list[Any] = [
    StartStreamingJobOperator,
    RestartStreamingJobOperator,
    KeepStreamingJobRunningOperator,
]


def attempt(**more: Any) -> Any:
    run = SimpleNamespace(dag_id="own", run_id="manual__1", run_type="scheduled", triggering_user_name=None)
    instance = SimpleNamespace(**RUN, map_index=-1, max_tries=1, task=SimpleNamespace(retries=1), **more)
    instance.xcom_push = lambda **_: None
    return {"dag_run": run, "ti": instance}


def waiting(operator: type[BaseOperator], managed: Managed, **arguments: Any) -> tuple[Any, DriverTrigger]:
    """The task, and how it waits in the triggerer for a driver that it has launched or found."""
    task: Any = operator(task_id="t", job="flights", jobs_file=managed.jobs_file, **arguments)
    task.pre_execute(attempt())
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(attempt())
    trigger = deferred.value.trigger
    assert isinstance(trigger, DriverTrigger)
    kind, arguments = trigger.serialize()
    assert kind.endswith(type(trigger).__name__)
    return task, type(trigger)(**arguments)


def kill(task: Any, trigger: DriverTrigger, where: str) -> None:
    if where == "worker":
        task.on_kill()
    else:
        asyncio.run(trigger.on_kill())


@pytest.mark.parametrize("where", ["worker", "triggerer"])
@pytest.mark.parametrize("operator", LAUNCH, ids=lambda each: each.__name__)
def test_the_stream_runs_on_and_that_is_said(
    operator: Any, where: str, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    task, trigger = waiting(operator, managed, **_deferring(operator))
    poll(managed.driver_lives)

    kill(task, trigger, where)

    assert managed.desired.state == "running"
    managed.wait_for_batch(managed.last_batch() + 3)
    assert "The stream of job flights runs on" in _said(capfd)


@pytest.mark.parametrize("where", ["worker", "triggerer"])
@pytest.mark.parametrize("operator", LAUNCH, ids=lambda each: each.__name__)
def test_the_job_is_asked_to_stop_where_the_dag_says_so(operator: Any, where: str, managed: Managed) -> None:
    task, trigger = waiting(operator, managed, stop_on_kill="True", **_deferring(operator))
    poll(managed.driver_lives)

    kill(task, trigger, where)

    poll(lambda: not managed.driver_lives())
    assert managed.desired.state == "stopped"
    assert {name: managed.desired.by.get(name) for name in RUN} == RUN
    assert managed.desired.why == "a task with stop_on_kill was ended"
    newest = managed.last_batch()
    again = StartStreamingJobOperator(task_id="t", job="flights", jobs_file=managed.jobs_file)
    assert again.execute(attempt())["batch"] > newest, "what a run has stopped itself does not bind it"


@pytest.mark.parametrize("operator", LAUNCH, ids=lambda each: each.__name__)
def test_a_task_that_was_ended_before_it_has_begun_stops_nothing(
    operator: Any, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    task = operator(task_id="t", job="flights", jobs_file=managed.jobs_file, stop_on_kill=True)
    task.pre_execute(attempt())

    task.on_kill()

    assert managed.desired.state == "running"
    assert "Job flights is left as it is" in _said(capfd)


@pytest.mark.parametrize("where", ["worker", "triggerer"])
@pytest.mark.parametrize("stops", [False, True])
def test_a_restart_that_was_ended_between_two_drivers_says_so(
    managed: Managed, where: str, stops: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    arguments: dict[str, Any] = {"deferrable": True, "stop_on_kill": stops}
    task, trigger = waiting(RestartStreamingJobOperator, managed, **arguments)
    assert isinstance(trigger, DriverGoneTrigger)

    kill(task, trigger, where)

    said = _said(capfd)
    assert ("may not have started another one" in said) is not stops
    assert "runs on" not in said
    assert managed.desired.state == ("stopped" if stops else "running")


def test_the_watch_of_an_own_dag_is_told_that_it_takes_over_no_page(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        "streambank_airflow.page.keep.page_of_watch", lambda *_, takes_over: asked.append(takes_over)
    )
    with DAG("own", schedule=None) as dag:
        _, trigger = waiting(KeepStreamingJobRunningOperator, managed, dag=dag)
    assert isinstance(trigger, JobEndTrigger)

    trigger.open_watcher(StreambankHook(jobs_file=str(managed.jobs_file)))

    assert asked == [False]


def test_a_start_that_takes_too_long_says_that_its_driver_runs_on(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.hangs.write_text("0")

    run = run_dag(
        one_task(StartStreamingJobOperator, managed, execution_timeout=timedelta(seconds=3), retries=0)
    )

    assert task_states(run) == {"task": "failed"}
    assert "The stream of job flights runs on" in _said(capfd)


def _deferring(operator: Any) -> dict[str, Any]:
    return {} if operator is KeepStreamingJobRunningOperator else {"deferrable": True}


def _said(capfd: pytest.CaptureFixture[str]) -> str:
    out, err = capfd.readouterr()
    return re.sub(r"\x1b\[[0-9;]*m", "", out + err)
