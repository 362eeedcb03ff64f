from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from streambank.core.errors import StorageError
from streambank_airflow.hooks.jobs import JobVerbs
from streambank_airflow.operators.job import RestartStreamingJobOperator
from streambank_airflow.triggers.job import DriverGoneTrigger
from tests.support.airflow_face.metadata_db import one_task, run_dag, task_states, xcom
from tests.support.jobs.managed_job import Managed

pytestmark = pytest.mark.usefixtures("airflow_database")

WAIT = DriverGoneTrigger.run


dag_of = partial(
    one_task, RestartStreamingJobOperator, dag_id="one_restart", poll_interval_s=0.05, note="new code"
)


def epoch(managed: Managed) -> int:
    view = managed.control.lease.view()
    assert view is not None
    return view.epoch


def desired(managed: Managed) -> str | None:
    found = managed.control.desired()
    return found.state if found else None


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
def test_another_driver_takes_over_at_a_batch_boundary(managed: Managed, deferrable: bool) -> None:
    managed.start()

    run = run_dag(dag_of(managed, deferrable=deferrable))

    result = xcom(run, "task")
    assert (result["state"], result["how"], result["stopped_epoch"]) == ("restarted", "boundary", 1)
    assert (result["epoch"], result["job"]) == (2, "flights")
    assert not [value for value in result.values() if isinstance(value, dict | list)]
    assert managed.driver_lives()
    assert desired(managed) == "running"
    asked = managed.control.last_event("restart-asked")
    assert asked is not None
    assert (asked["why"], asked["by"]["dag_id"]) == ("new code", "one_restart")


def test_it_waits_in_the_triggerer_with_no_lock_held_and_a_job_that_is_meant_to_run(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    async def wait(self: DriverGoneTrigger) -> AsyncIterator[TriggerEvent]:
        lock = managed.control.operation_lock.view()
        seen.append((desired(managed), lock is None or lock.free))
        async for event in WAIT(self):
            yield event

    monkeypatch.setattr(DriverGoneTrigger, "run", wait)
    managed.start()

    run_dag(dag_of(managed, deferrable=True))

    assert seen == [("running", True)]
    assert epoch(managed) == 2


def test_a_job_that_somebody_has_stopped_stays_stopped(managed: Managed) -> None:
    managed.start()
    managed.stop("maintenance")

    run = run_dag(dag_of(managed))

    assert task_states(run) == {"task": "skipped"}
    assert not managed.driver_lives()


def test_a_stop_while_it_waits_has_the_last_word(managed: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(self: DriverGoneTrigger) -> AsyncIterator[TriggerEvent]:
        async for event in WAIT(self):
            managed.control.set_desired("stopped", by={"user": "somebody"})
            yield event

    monkeypatch.setattr(DriverGoneTrigger, "run", wait)
    managed.start()

    run = run_dag(dag_of(managed, deferrable=True))

    assert task_states(run) == {"task": "skipped"}
    assert not managed.driver_lives()


@pytest.mark.storm
def test_another_try_does_not_stop_the_driver_that_the_first_has_started(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart, tries = JobVerbs.restart, []

    def fails_once(self: JobVerbs, ref: str, **how: Any) -> Any:
        tries.append(restart(self, ref, **how))
        if len(tries) == 1:
            raise StorageError("The disk is away.", code="storage")
        return tries[-1]

    monkeypatch.setattr(JobVerbs, "restart", fails_once)
    managed.start()

    run = run_dag(dag_of(managed, retries=2, retry_delay=timedelta(0)))

    assert task_states(run) == {"task": "success"}
    assert len(tries) == 2
    assert epoch(managed) == 2
    assert len(managed.control.requests.records.numbers()) == 1


@pytest.mark.storm
def test_a_job_without_a_driver_is_started(managed: Managed) -> None:
    managed.start()
    managed.kill()

    run = run_dag(dag_of(managed, deferrable=True))

    assert (xcom(run, "task")["state"], xcom(run, "task")["how"]) == ("started", "dead")
    assert managed.driver_lives()


@pytest.mark.storm
def test_a_restart_may_depend_on_a_forms_answer(managed: Managed) -> None:
    managed.start()

    run = run_dag(dag_of(managed, only_if="{{ dag_run.conf['restart'] }}"), run_conf={"restart": False})

    assert task_states(run) == {"task": "skipped"}
    assert epoch(managed) == 1
