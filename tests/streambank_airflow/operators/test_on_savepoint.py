"""Tasks that take, verify, restore and rewrite lead to the page of their savepoint."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank_airflow.operators.erase import EraseStateOperator
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.on_savepoint import SAVEPOINT_KEY, SavepointLink, page_url
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.rewrite import CompactStateOperator, RescaleStateOperator
from streambank_airflow.operators.savepoint import (
    CreateSavepointOperator,
    ImportSavepointOperator,
    VerifySavepointOperator,
)
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.airflow_face.page_api import page_on
from tests.support.jobs.managed_job import Managed

__all__ = ["page_on"]


@pytest.mark.parametrize(
    "operator",
    [
        CompactStateOperator,
        CreateSavepointOperator,
        EraseStateOperator,
        ImportSavepointOperator,
        RescaleStateOperator,
        RestoreSavepointOperator,
        VerifySavepointOperator,
    ],
)
def test_each_has_the_button(operator: Any) -> None:
    assert [link.name for link in operator.operator_extra_links] == ["Savepoint"]
    assert SavepointLink().xcom_key == SAVEPOINT_KEY


def test_a_page_is_below_the_address_of_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/prod/")
    place = "https://airflow.example/prod/plugin/streambank"
    assert page_url("flights/left", "b000041-c28c") == f"{place}/flights/savepoints/b000041-c28c"
    assert page_url("flights") == f"{place}/flights"
    assert page_url("a?b/c", "../x") == f"{place}/a%3Fb/savepoints/..%2Fx"


def test_a_task_leads_to_its_savepoint_or_to_the_job_where_there_are_several(page_on: None) -> None:
    one = {"job": "flights/left", "savepoint": "b000041-c28c"}
    task = CreateSavepointOperator(task_id="take", job="flights/left")
    key: Any = None  # it is asked only where the task does not say it

    task.did("took", one)
    place = "/plugin/streambank/flights"
    assert SavepointLink().get_link(task, ti_key=key).endswith(f"{place}/savepoints/b000041-c28c")
    task.did("restored", one, {**one, "job": "flights/right"})
    assert SavepointLink().get_link(task, ti_key=key).endswith(place)
    task.did("restored")
    assert task.work == []


@pytest.mark.parametrize(
    "where", [{"job": "flights@eu"}, {"job": "adhoc", "checkpoint": "file:///c"}, {"job": "flights"}]
)
def test_a_task_on_what_the_page_does_not_show_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch, where: dict[str, Any]
) -> None:
    monkeypatch.setenv("AIRFLOW__STREAMBANK__PAGE", str(where != {"job": "flights"}))
    task = CreateSavepointOperator(task_id="take", **where)

    task.did("took", {"job": "flights", "savepoint": "b000041-c28c"})
    assert task.work and task.savepoint_page is None


@pytest.mark.storm
@pytest.mark.usefixtures("airflow_database", "page_on")
def test_tasks_leave_the_url_and_one_without_a_savepoint_leaves_none(managed: Managed) -> None:
    where: dict[str, Any] = {"job": "flights", "jobs_file": str(managed.jobs_file), "retries": 0}
    with DAG("linked", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", **where)
        take = CreateSavepointOperator(task_id="take", **where)
        verify = VerifySavepointOperator(task_id="verify", **where)
        none = VerifySavepointOperator(task_id="none", level="none", **where)
        plan = RestoreSavepointOperator(task_id="plan", plan_only=True, if_running="stop", **where)
        stop = StopStreamingJobOperator(task_id="stop", savepoint=False, **where)
        restore = RestoreSavepointOperator(
            task_id="restore", savepoint="latest", into=str(managed.folder / "copy"), **where
        )
        start >> take >> verify >> none
        verify >> plan >> stop >> restore
    run = run_dag(dag)

    states = task_states(run)
    assert states.pop("none") == "skipped"
    assert set(states.values()) == {"success"}, states
    savepoint = xcom(run, "take", "savepoint")
    for task_id in ("take", "verify", "restore"):
        assert xcom(run, task_id, SAVEPOINT_KEY).endswith(
            f"/plugin/streambank/flights/savepoints/{savepoint}"
        )
    for task_id in ("plan", "none"):
        assert not xcom(run, task_id, SAVEPOINT_KEY)
    assert not {
        name for name in sys.modules if name.startswith(("openlineage", "airflow.providers.openlineage"))
    }
