"""Each savepoint is an event of its job's asset, also where only a run knows the job, or maps the task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG, task, task_group

from streambank_airflow.assets import savepoint_asset
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator
from tests.support.airflow_face.metadata_db import asset_events, run_dag, task_states, xcom
from tests.support.jobs.managed_job import Managed

pytestmark = pytest.mark.usefixtures("airflow_database")


def take(**more: Any) -> CreateSavepointOperator:
    return CreateSavepointOperator(task_id="take", **more)


def templated(how: dict[str, Any]) -> None:
    take(job="{{ params.job }}", **how)


def output(how: dict[str, Any]) -> None:
    @task
    def pick() -> str:
        return "flights"

    take(job=pick(), **how)


def mapped(how: dict[str, Any]) -> None:
    CreateSavepointOperator.partial(task_id="take", **how).expand(job=["flights"])


def in_a_mapped_group(how: dict[str, Any]) -> None:
    @task_group
    def group(job: str) -> None:
        take(job=job, **how)

    group.expand(job=["flights"])


def named(how: dict[str, Any]) -> None:
    take(job="flights", **how)


def named_as_outlet(how: dict[str, Any]) -> None:
    take(job="{{ params.job }}", outlets=[savepoint_asset("flights")], **how)


@pytest.mark.parametrize(
    "tasks",
    [named, templated, output, mapped, in_a_mapped_group, named_as_outlet],
    ids=lambda each: each.__name__,
)
def test_a_take_is_one_event(tasks: Callable[[dict[str, Any]], None], managed: Managed) -> None:
    managed.start(until=1)
    before = len(asset_events())
    with DAG("own", schedule=None, params={"job": "flights"}) as dag:
        tasks({"jobs_file": managed.jobs_file})

    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    newest = list(managed.repository.manifests("flights"))[-1].savepoint
    events = asset_events()[before:]
    assert [(one["job"], one["savepoint"]) for one in events] == [("flights", newest)]


@pytest.mark.parametrize("job", ["flights", "{{ params.job }}"])
def test_a_stop_is_an_event_where_it_takes_a_savepoint(job: str, managed: Managed) -> None:
    managed.start(until=1)
    before = len(asset_events())
    with DAG("own", schedule=None, params={"job": "flights"}) as dag:
        StopStreamingJobOperator(task_id="stop", job=job, savepoint=True, jobs_file=managed.jobs_file)

    run = run_dag(dag)

    assert [one["savepoint"] for one in asset_events()[before:]] == [xcom(run, "stop")["savepoint"]]
