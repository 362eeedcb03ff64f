"""A stop that waits in the triggerer, run with Airflow's own database and a driver without Spark."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.serialization.serialized_objects import BaseSerialization
from airflow.triggers.base import TriggerEvent

from streambank.core.errors import StorageError
from streambank.job.stop_request import StopAsked
from streambank_airflow.caller import asker
from streambank_airflow.hooks.jobs import JobVerbs
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.triggers.base import Event
from streambank_airflow.triggers.job import DriverGoneTrigger
from streambank_airflow.watch.job import JobView
from tests.support.airflow_face.metadata_db import asset_events, one_task, run_dag, task_states, xcom
from tests.support.airflow_face.moved import import_string
from tests.support.jobs.managed_job import Managed
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")

WAIT = DriverGoneTrigger.run
JUDGE = DriverGoneTrigger.judge


stop_dag = partial(one_task, StopStreamingJobOperator, deferrable=True, poll_interval_s=0.05)


def in_the_triggerer(
    patch: pytest.MonkeyPatch, wait: Callable[[DriverGoneTrigger], AsyncIterator[TriggerEvent]]
) -> None:
    """Let `wait` run instead of the trigger's own wait."""
    patch.setattr(DriverGoneTrigger, "run", wait)


def requests(managed: Managed) -> int:
    return len(list(managed.control.requests.records.all()))


def test_it_defers_with_no_lock_held_and_tells_the_same_as_one_that_does_not(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    async def wait(self: DriverGoneTrigger) -> AsyncIterator[TriggerEvent]:
        desired, lock = managed.control.desired(), managed.control.operation_lock.view()
        seen.append((desired and desired.state, lock is None or lock.free, requests(managed)))
        async for event in WAIT(self):
            yield event

    in_the_triggerer(monkeypatch, wait)
    managed.start()
    before = len(asset_events())

    run = run_dag(stop_dag(managed, savepoint=True, note="the end"))

    assert seen == [("stopped", True, 1)]
    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert (result["state"], result["how"], result["epoch"]) == ("stopped", "boundary", 1)
    assert result["batch"] == managed.last_batch()
    (summary,) = managed.repository.manifests("flights")
    assert (summary.savepoint, summary.batch, summary.note) == (
        result["savepoint"],
        result["batch"],
        "the end",
    )
    assert [event["savepoint"] for event in asset_events()[before:]] == [result["savepoint"]]
    assert requests(managed) == 1
    assert not managed.driver_lives()


def test_a_triggerer_that_is_restarted_goes_on_from_what_airflow_stores(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = managed.start().pid
    assert pid is not None
    looks: list[Event | None] = []

    def judge(self: DriverGoneTrigger, view: JobView) -> Event | None:
        looks.append(JUDGE(self, view))
        return looks[-1]

    async def first_event(trigger: DriverGoneTrigger) -> TriggerEvent:
        async for event in WAIT(trigger):
            return event
        raise AssertionError("it ended without an event")

    async def wait(self: DriverGoneTrigger) -> AsyncIterator[TriggerEvent]:
        path, arguments = self.serialize()
        stored = BaseSerialization.serialize(arguments)
        waiting = asyncio.ensure_future(first_event(self))
        while len(looks) < 2:
            await asyncio.wait([waiting], timeout=0.01)
            assert not waiting.done(), "the driver cannot have gone: it is stopped"
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        os.kill(pid, signal.SIGCONT)
        yield await first_event(import_string(path)(**BaseSerialization.deserialize(stored)))

    monkeypatch.setattr(DriverGoneTrigger, "judge", judge)
    in_the_triggerer(monkeypatch, wait)
    os.kill(pid, signal.SIGSTOP)

    run = run_dag(stop_dag(managed))

    assert looks[:2] == [None, None]
    last = looks[-1]
    assert last is not None
    assert last["status"] == "gone"
    assert (xcom(run, "task")["state"], xcom(run, "task")["how"]) == ("stopped", "boundary")
    assert requests(managed) == 1


@pytest.mark.storm
def test_a_driver_that_does_not_react_is_killed_when_the_task_goes_on(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 0.5)
    pid = managed.start().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    run = run_dag(stop_dag(managed, force_after_s=0.2))

    assert (xcom(run, "task")["state"], xcom(run, "task")["how"]) == ("stopped", "killed")
    assert requests(managed) == 1
    assert not managed.driver_lives()


@pytest.mark.storm
def test_a_start_while_it_waits_has_the_last_word_and_is_not_retried_away(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def wait(self: DriverGoneTrigger) -> AsyncIterator[TriggerEvent]:
        async for event in WAIT(self):
            await asyncio.to_thread(managed.start)
            yield event

    in_the_triggerer(monkeypatch, wait)
    managed.start()

    run = run_dag(stop_dag(managed, retries=3))

    assert task_states(run) == {"task": "failed"}
    assert "started-since" in capfd.readouterr().out
    assert managed.driver_lives()


def test_nothing_is_waited_for_where_no_driver_lives(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(self: DriverGoneTrigger) -> AsyncIterator[TriggerEvent]:
        raise AssertionError("there is nothing to wait for")

    in_the_triggerer(monkeypatch, wait)

    run = run_dag(stop_dag(managed))

    assert xcom(run, "task")["state"] == "already-stopped"
    assert managed.desired.state == "stopped"


def fails_once(patch: pytest.MonkeyPatch, meanwhile: Callable[[], object] = lambda: None) -> list[StopAsked]:
    """Let the first attempt to finish a stop fail as a disk does; what each was to finish is in the list."""
    finish, seen = JobVerbs.stop, []

    def stop(self: JobVerbs, ref: str, **how: Any) -> Any:
        seen.append(how["asked"])
        if len(seen) == 1:
            meanwhile()
            raise StorageError("The disk is away.", code="storage")
        return finish(self, ref, **how)

    patch.setattr(JobVerbs, "stop", stop)
    return seen


AGAIN: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(0)}


def test_a_try_after_a_failure_goes_on_with_what_was_asked(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def see_it_gone() -> None:
        poll(lambda: not managed.driver_lives())

    seen = fails_once(monkeypatch, see_it_gone)
    managed.start()
    numbers = len(managed.control.desired_records.numbers())

    run = run_dag(stop_dag(managed, **AGAIN))

    assert task_states(run) == {"task": "success"}
    result = xcom(run, "task")
    assert (result["state"], result["how"], result["epoch"]) == ("stopped", "boundary", 1)
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert requests(managed) == 1
    assert len(managed.control.desired_records.numbers()) == numbers + 1


@pytest.mark.storm
def test_a_try_after_a_failure_asks_no_driver_that_was_started_in_between(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def start_again() -> None:
        poll(lambda: not managed.driver_lives())
        managed.start()

    seen = fails_once(monkeypatch, start_again)
    managed.start()

    run = run_dag(stop_dag(managed, **AGAIN))

    assert task_states(run) == {"task": "failed"}
    assert "started-since" in capfd.readouterr().out
    assert len(seen) == 1
    assert managed.driver_lives()
    assert requests(managed) == 1
    assert managed.desired.state == "running"


def test_tries_are_one_asker_until_a_person_clears_the_task() -> None:
    def at(max_tries: int) -> Any:
        task = SimpleNamespace(retries=3)
        instance = SimpleNamespace(
            dag_id="d", run_id="r", task_id="t", map_index=-1, task=task, max_tries=max_tries
        )
        return {"ti": instance}

    assert asker(at(3)) == asker(at(3))
    cleared_at_try_2 = at(2 + 3)
    assert asker(cleared_at_try_2) != asker(at(3))
