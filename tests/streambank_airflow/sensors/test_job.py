from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred

from streambank.control.claims import Claim, Holder
from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.core.errors import InputError
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.sensors.job import BatchCommittedSensor, StreamingJobStatusSensor
from streambank_airflow.sensors.sla import SlaSensor
from streambank_airflow.sensors.watermark import WatermarkSensor
from streambank_airflow.triggers.base import JobTrigger
from streambank_airflow.triggers.job import BatchCommittedTrigger, JobStatusTrigger
from streambank_airflow.triggers.sla import SlaTrigger
from streambank_airflow.triggers.watermark import WatermarkTrigger
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.airflow_face.releases import needs_3_3
from tests.support.jobs.declared import ELSEWHERE
from tests.support.jobs.managed_job import Managed

dag_of = partial(one_task, poke_interval=0.1)


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
def test_a_batch_is_waited_for(airflow_database: None, managed: Managed, deferrable: bool) -> None:
    managed.start()
    newest = managed.last_batch()

    run = run_dag(dag_of(BatchCommittedSensor, managed, deferrable=deferrable))

    seen = xcom(run, "task")
    assert (seen["state"], seen["idle"]) == ("running", False)
    assert seen["batch"] > newest


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
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
    assert StreamingJobStatusSensor(task_id="task", job="flights").deferrable is False


@pytest.mark.parametrize(
    ("sensor", "own", "trigger", "handed"),
    [
        (StreamingJobStatusSensor, {"states": ["failed"]}, JobStatusTrigger, {"poll_interval_s": 5}),
        (
            BatchCommittedSensor,
            {"after_batch": "7", "accept_idle": True},
            BatchCommittedTrigger,
            {"after_batch": 7, "accept_idle": True},
        ),
        (
            WatermarkSensor,
            {"moment": datetime(2013, 1, 2, tzinfo=UTC), "checkpoint": "/ck"},
            WatermarkTrigger,
            {"moment": "2013-01-02T00:00:00+00:00", "checkpoint": "/ck"},
        ),
        (SlaSensor, {"objectives": ["pause"]}, SlaTrigger, {"objectives": ["pause"], "poll_interval_s": 60}),
    ],
)
def test_a_deferred_sensor_hands_over_everything_that_its_trigger_needs(
    sensor: Any, own: dict[str, Any], trigger: type[JobTrigger], handed: dict[str, Any]
) -> None:
    task = sensor(task_id="task", job="flights", jobs_file="jobs.toml", deferrable=True, timeout=60, **own)

    with pytest.raises(TaskDeferred) as deferred:
        task.execute({})

    made = deferred.value.trigger
    assert isinstance(made, trigger)
    assert (made.job, made.jobs_file) == ("flights", "jobs.toml")
    assert {name: getattr(made, name) for name in handed} == handed
    assert deferred.value.timeout == timedelta(seconds=60)


@pytest.mark.parametrize(("sensor", "own"), [(SlaSensor, {}), (WatermarkSensor, {"moment": "{{ ds }}"})])
def test_states_are_those_of_a_declared_job(sensor: Any, own: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="failed_states"):
        sensor(task_id="task", job="sales", checkpoint="/ck", failed_states=["failed"], **own)


@needs_3_3
def test_a_batch_is_waited_for_by_a_sensor_that_is_rescheduled(
    airflow_database: None, managed: Managed
) -> None:
    managed.start()
    newest = managed.last_batch()
    run = run_dag(dag_of(BatchCommittedSensor, managed, poke_interval=1, mode="reschedule", timeout=120))

    assert task_states(run) == {"task": "success"}
    assert xcom(run, "task")["batch"] > newest


class Kept(dict[str, Any]):
    """A task's store."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


def look_once(store: Kept, managed: Managed, attempt: int = 1) -> int:
    """The batch above which a sensor waits in a process of its own, as one that is rescheduled looks."""
    sensor = BatchCommittedSensor(
        task_id="task", job="flights", jobs_file=str(managed.jobs_file), mode="reschedule"
    )
    context: Any = {"ti": SimpleNamespace(try_number=attempt), "task_state_store": store}
    sensor.prepare(context)
    return int(sensor.after_batch or 0)


def test_each_process_of_a_rescheduled_sensor_waits_for_the_same_and_another_try_begins_once_more(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank_airflow.sensors.job.KEEPS_IN_TASKS", True)
    managed.start()
    store = Kept()

    first = look_once(store, managed)
    managed.wait_for_batch(first + 2)

    assert look_once(store, managed) == first
    assert look_once(store, managed, attempt=2) >= first + 2


def test_a_sensor_that_could_never_succeed_is_refused_when_the_dag_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streambank_airflow.sensors.job.KEEPS_IN_TASKS", False)

    with pytest.raises(InputError, match=r"before Airflow 3\.3") as refused:
        BatchCommittedSensor(task_id="task", job="flights", mode="reschedule")
    assert "after_batch" in refused.value.hint
    others: list[dict[str, Any]] = [
        {"after_batch": 3},
        {"after_batch": "{{ params.x }}"},
        {"deferrable": True},
        {"mode": "poke"},
    ]
    for how in others:
        BatchCommittedSensor(task_id="task", job="flights", **{"mode": "reschedule", **how})


@pytest.mark.parametrize(
    ("sensor", "beats", "found"),
    [
        (partial(StreamingJobStatusSensor, states=["running"]), True, True),
        (partial(StreamingJobStatusSensor, states=["failed"]), False, True),
        (partial(StreamingJobStatusSensor, states=["stopped"]), True, False),
    ],
)
def test_one_look_of_a_rescheduled_sensor_is_enough_for_a_driver_on_another_host(
    managed: Managed, sensor: Any, beats: bool, found: bool
) -> None:
    theirs = JobControl(managed.control.store, "flights", here=ELSEWHERE)
    holder = Holder(ELSEWHERE, (this_process("python"),), {"purpose": "run", "launch_id": "x"}, 0.1, 1.5)
    claim = theirs.lease.claims.claim(holder)
    assert isinstance(claim, Claim)
    claim.beat({})
    over = threading.Event()

    def go_on() -> None:
        while beats and not over.wait(0.1):
            claim.beat({})

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        waits = partial(sensor, task_id="task", job="flights", jobs_file=str(managed.jobs_file))
        assert bool(waits(mode="reschedule").poke({})) is found
        assert not waits(mode="poke").poke({}), "one look tells nothing"
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("mode", ["poke", "reschedule", "deferrable"])
def test_a_driver_that_died_on_another_host_ends_the_wait_unless_somebody_watches(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, mode: Any, is_watched: bool
) -> None:
    managed.control.set_desired("running", by={"user": "ann"})
    if is_watched:
        managed.control.watches.begin(by={"dag_id": "flights.run"}, desired=managed.desired.number)
    holder = Holder(ELSEWHERE, (this_process("python"),), {"purpose": "run", "launch_id": "x"}, 0.1, 0.3)
    JobControl(managed.control.store, "flights", here=ELSEWHERE).lease.claims.claim(holder)
    monkeypatch.setattr("streambank_airflow.sensors.job._JUDGED_S", 1.0)
    file = str(managed.jobs_file)

    async def opened(*_: Any) -> StreambankHook:
        return StreambankHook(jobs_file=file)

    monkeypatch.setattr(StreambankHook, "aopen", opened)
    waits = partial(BatchCommittedSensor, task_id="task", job="flights", jobs_file=file, after_batch=7)
    sensor = waits(poke_interval=0.1, **({"deferrable": True} if mode == "deferrable" else {"mode": mode}))

    async def wait() -> Any:
        if mode == "deferrable":
            async for event in sensor.make_trigger().run():
                return sensor.execute_complete({}, {**event.payload})
        for _ in range(20):
            assert not sensor.poke({})
            await asyncio.sleep(0.1)
        raise TimeoutError

    with pytest.raises(TimeoutError if is_watched else AirflowFailException):
        asyncio.run(asyncio.wait_for(wait(), 2 if is_watched else 30))


@pytest.mark.parametrize(
    ("states", "counts"), [(["running"], False), (["stopped"], False), (["failed"], True), ("failed", True)]
)
def test_a_job_that_has_lost_what_it_needs_has_failed_and_is_nothing_else(states: Any, counts: bool) -> None:
    waits = StreamingJobStatusSensor(task_id="task", job="flights", states=states)
    assert ("checkpoint-lost" in waits.states) is counts
    fails = StreamingJobStatusSensor(task_id="task", job="flights", failed_states=states)
    assert fails.failed_states is not None
    assert "checkpoint-lost" in fails.failed_states
