"""The DAG `maintenance`, run by Airflow's own task runner on a job that needs neither Spark nor Java."""

from __future__ import annotations

import os
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag  # before Airflow 3.2: airflow.models.dagbag

from streambank_airflow.testing import FakeJob, FakeJobs

pytestmark = pytest.mark.usefixtures("airflow_database")


@pytest.fixture
def maintenance() -> Any:
    return DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]).dags["maintenance"]


@pytest.fixture
def flights(fake_jobs: FakeJobs) -> FakeJob:
    job = fake_jobs.declare("flights")
    job.start()
    return job


def test_the_job_runs_again_and_a_savepoint_was_taken(maintenance: Any, flights: FakeJob) -> None:
    assert maintenance.test().state == "success"
    assert flights.state == "running"
    assert len(flights.savepoints) == 1


def test_it_runs_again_where_the_work_fails(maintenance: Any, flights: FakeJob) -> None:
    maintenance.get_task("work").bash_command = "false"
    assert maintenance.test().state == "failed"
    assert flights.state == "running"


def test_a_driver_that_cannot_start_fails_the_run(maintenance: Any, flights: FakeJob) -> None:
    maintenance.get_task("start").retries = 0
    flights.cannot_start("ValueError: no such topic: departures")
    assert maintenance.test().state == "failed"
    assert flights.state == "failed"  # it is meant to run, and does not


def test_a_job_that_somebody_has_stopped_is_left_alone(maintenance: Any, flights: FakeJob) -> None:
    flights.stop()
    assert maintenance.test().state == "success"
    assert flights.state == "stopped"
