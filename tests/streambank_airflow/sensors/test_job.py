from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import DAG

from streambank.core.errors import InputError
from streambank_airflow.sensors.job import BatchCommittedSensor, JobSensor, StreamingJobStatusSensor
from streambank_airflow.triggers.job import BatchCommittedTrigger, JobStatusTrigger
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import Managed


def dag_of(sensor: type[JobSensor], managed: Managed, **arguments: Any) -> DAG:
    with DAG("one_sensor", schedule=None) as dag:
        sensor(task_id="task", job="flights", jobs_file=managed.jobs_file, poke_interval=0.1, **arguments)
    return dag


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_batch_is_waited_for(airflow_database: None, managed: Managed, deferrable: bool) -> None:
    managed.start()
    newest = managed.last_batch()

    run = run_dag(dag_of(BatchCommittedSensor, managed, deferrable=deferrable))

    seen = xcom(run, "task")
    assert (seen["state"], seen["idle"]) == ("running", False)
    assert seen["batch"] > newest


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_state_is_waited_for(airflow_database: None, managed: Managed, deferrable: bool) -> None:
    managed.start()

    run = run_dag(dag_of(StreamingJobStatusSensor, managed, deferrable=deferrable))

    assert xcom(run, "task")["state"] == "running"


def test_a_state_from_which_it_will_not_come_fails_at_once(airflow_database: None, managed: Managed) -> None:
    managed.start()
    managed.kill()

    run = run_dag(dag_of(StreamingJobStatusSensor, managed, failed_states=["failed"], retries=3))

    assert task_states(run) == {"task": "failed"}


def test_a_sensor_gives_up_in_time(airflow_database: None, managed: Managed) -> None:
    run = run_dag(dag_of(StreamingJobStatusSensor, managed, timeout=0.3))

    assert task_states(run) == {"task": "failed"}


def test_a_state_that_there_is_not_is_refused_when_the_dag_is_read() -> None:
    with pytest.raises(InputError, match="'runing' is not a state"):
        StreamingJobStatusSensor(task_id="task", job="flights", states=["runing"])


def test_waiting_in_the_triggerer_is_airflows_setting() -> None:
    sensor = StreamingJobStatusSensor(task_id="task", job="flights")

    assert sensor.deferrable is False
    assert sensor.poke_interval == 5


def test_a_deferred_sensor_hands_over_everything_that_its_trigger_needs() -> None:
    sensor = BatchCommittedSensor(
        task_id="task",
        job="flights",
        jobs_file="jobs.toml",
        after_batch="7",
        accept_idle=True,
        deferrable=True,
        timeout=60,
    )

    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})

    trigger = deferred.value.trigger
    assert isinstance(trigger, BatchCommittedTrigger)
    assert (trigger.job, trigger.jobs_file, trigger.after_batch) == ("flights", "jobs.toml", 7)
    assert trigger.accept_idle
    assert deferred.value.timeout.total_seconds() == 60


def test_each_sensor_has_a_trigger_of_its_own() -> None:
    sensor = StreamingJobStatusSensor(task_id="task", job="flights", states=["stopped"])

    assert isinstance(sensor.make_trigger(), JobStatusTrigger)
