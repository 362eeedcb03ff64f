"""Each sensor waits by poke, in processes that are rescheduled, and in the triggerer, and ends the same way.

A job that has failed ends each of these waits, unless somebody keeps it running, who starts it again.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import pytest
from airflow.sdk import BaseSensorOperator

from streambank.control.control import JobControl
from streambank_airflow.get_provider_info import get_provider_info
from streambank_airflow.sensors.job import BatchCommittedSensor, StreamingJobStatusSensor
from streambank_airflow.sensors.sla import SlaSensor
from streambank_airflow.sensors.watermark import WatermarkSensor
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.airflow_face.releases import BEFORE_3_3
from tests.support.jobs.managed_job import Managed
from tests.support.sla.fake_assessments import Assessor, assessor
from tests.support.waiting import poll

__all__ = ["assessor"]
pytestmark = pytest.mark.usefixtures("airflow_database", "assessor")

MODES: dict[str, dict[str, Any]] = {
    "poke": {},
    "reschedule": {"mode": "reschedule", "poke_interval": 1},
    "deferrable": {"deferrable": True},
}
COMES: dict[type[BaseSensorOperator], dict[str, Any]] = {
    StreamingJobStatusSensor: {},
    BatchCommittedSensor: {"after_batch": 0} if BEFORE_3_3 else {},
    WatermarkSensor: {"moment": "1970-01-01T00:00:03Z"},
    SlaSensor: {},
}
"""Each sensor, and for what it waits that comes."""
NEVER: dict[type[BaseSensorOperator], dict[str, Any]] = {
    StreamingJobStatusSensor: {"states": "stopping"},
    BatchCommittedSensor: {"after_batch": 1_000_000},
    WatermarkSensor: {"moment": "2970-01-01T00:00:00Z"},
    SlaSensor: {},
}
"""And for what, of a job that has failed, it waits in vain."""


def in_modes(sensors: Iterable[type[BaseSensorOperator]]) -> list[Any]:
    """Each sensor in each mode; `make test` plays one sensor in all of them, and all in the triggerer."""
    return [
        pytest.param(
            sensor,
            mode,
            id=f"{sensor.__name__}-{mode}",
            marks=() if mode == "deferrable" or sensor is BatchCommittedSensor else pytest.mark.storm,
        )
        for sensor in sensors
        for mode in MODES
    ]


def wait(sensor: type[BaseSensorOperator], managed: Managed, mode: str, **arguments: Any) -> Any:
    how = {"poke_interval": 0.1, "timeout": 60, "retries": 0, **MODES[mode], **arguments}
    return run_dag(one_task(sensor, managed, **how))


def test_there_are_all() -> None:
    found = {
        one
        for entry in get_provider_info()["sensors"]
        for name in entry["python-modules"]
        for _, one in inspect.getmembers(import_module(name), inspect.isclass)
        if issubclass(one, BaseSensorOperator) and one.__module__ == name and "make_trigger" in vars(one)
    }
    assert {one.__name__ for one in found} - {"JobSensor"} == {one.__name__ for one in COMES}


@pytest.mark.parametrize(("sensor", "mode"), in_modes(COMES))
def test_what_comes_is_waited_for(sensor: type[BaseSensorOperator], mode: str, managed: Managed) -> None:
    managed.start(until=1)

    run = wait(sensor, managed, mode, **COMES[sensor])

    assert task_states(run) == {"task": "success"}
    assert (xcom(run, "task")["job"], xcom(run, "task", key="state")) == ("flights", "running")


@pytest.mark.parametrize(("sensor", "mode"), in_modes(NEVER))
def test_a_job_that_has_failed_ends_the_wait(
    sensor: type[BaseSensorOperator], mode: str, managed: Managed, assessor: Assessor
) -> None:
    assessor.says(pause="breach")
    managed.start(until=1)
    managed.kill()

    assert task_states(wait(sensor, managed, mode, **NEVER[sensor])) == {"task": "failed"}


def watched(control: JobControl) -> None:
    """Let somebody keep the job running, as it is meant to be now."""
    desired = control.desired()
    assert desired is not None
    control.watches.begin(by={"dag_id": "flights.run", "run_id": "1"}, desired=desired.number)


@pytest.mark.parametrize(
    "mode", [mode if mode == "deferrable" else pytest.param(mode, marks=pytest.mark.storm) for mode in MODES]
)
def test_a_job_that_is_about_to_be_started_again_has_not_failed(mode: str, managed: Managed) -> None:
    managed.start(until=1)
    watched(managed.control)
    managed.kill()
    again = threading.Timer(3.0, managed.start)
    again.start()
    try:
        run = wait(BatchCommittedSensor, managed, mode, after_batch=managed.last_batch() + 2)
    finally:
        again.join()
    poll(managed.driver_lives)

    assert task_states(run) == {"task": "success"}


def test_one_that_was_given_up_has_failed_and_one_may_wait_for_it_all_the_same(managed: Managed) -> None:
    managed.start(until=1)
    watched(managed.control)
    managed.kill()
    newest = managed.control.watches.view()
    assert newest is not None
    managed.control.watches.end(newest.watcher, "gave-up", "3 drivers ended")

    assert task_states(wait(StreamingJobStatusSensor, managed, "poke")) == {"task": "failed"}
    restarted = threading.Timer(2.0, managed.start)
    restarted.start()
    run = wait(StreamingJobStatusSensor, managed, "poke", failed_states=())
    restarted.join()
    assert task_states(run) == {"task": "success"}
