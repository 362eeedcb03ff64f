"""What the engine logs is in the log of the task, with nothing set up for it."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG

from streambank_airflow.operators.job import StartStreamingJobOperator
from tests.support.airflow_face.metadata_db import run_dag
from tests.support.jobs.managed_job import Managed

pytestmark = pytest.mark.airflow


@pytest.mark.usefixtures("airflow_database")
def test_what_a_start_waits_for_is_in_the_task_log(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("alone") as dag:
        StartStreamingJobOperator(task_id="start", job="flights", jobs_file=str(managed.jobs_file))
    run_dag(dag)
    said = [one.getMessage() for one in caplog.records if one.name == "streambank.job.start"]
    assert said[0].startswith("The driver of job flights was launched: launch-")
    assert said[1] == "The driver of job flights is starting ..."
