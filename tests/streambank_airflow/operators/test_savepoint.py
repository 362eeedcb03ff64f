from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG, task

from streambank_airflow.operators.job import StartStreamingJobOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator
from tests.support.airflow_face.metadata_db import run_dag, xcom
from tests.support.jobs.managed_job import Managed

pytestmark = pytest.mark.usefixtures("airflow_database")


@task
def told(savepoint: Any) -> str:
    return f"told of {savepoint}"


def test_a_field_of_the_result_is_an_input_of_the_next_task(managed: Managed) -> None:
    where = {"job": "flights", "jobs_file": str(managed.jobs_file)}
    with DAG("savepoint_then_batch", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", **where)
        take = CreateSavepointOperator(task_id="take", **where)
        start >> take
        told(take.output["savepoint"])
    run = run_dag(dag)
    result = xcom(run, "take")
    assert result["savepoint"].startswith("b0")
    assert xcom(run, "take", "savepoint") == result["savepoint"]
    assert xcom(run, "told") == f"told of {result['savepoint']}"
