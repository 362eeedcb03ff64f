"""A task of one's own alerts whom the job's `notify` names, by real runs of a DAG."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, task

from streambank.core.errors import InputError, StorageError
from streambank.declaration.notify import KINDS
from streambank_airflow.notify.job_notifier import KINDS_OF_TASKS, JobNotifier
from tests.streambank_airflow.notify.test_alerts import declare
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.airflow_face.moved import CallbackTrigger
from tests.support.airflow_face.notifiers import FILE_NOTIFIER, told
from tests.support.jobs.managed_job import Managed

pytestmark = pytest.mark.usefixtures("airflow_database")


def own_dag(error: Exception | None, **callbacks: Any) -> DAG:
    with DAG("feed", schedule=None) as dag:

        @task(retry_delay=timedelta(0), **callbacks)
        def write() -> None:
            if error is not None:
                raise error

        write()
    return dag


def notifier(managed: Managed, **more: Any) -> JobNotifier:
    return JobNotifier(**{"job": "flights", "kind": "giving-up", "jobs_file": str(managed.jobs_file), **more})


def test_a_task_that_fails_alerts_those_of_its_kind_once_its_retries_are_used_up(managed: Managed) -> None:
    chat, page = declare(managed, name="chat"), declare(managed, "giving-up", name="page")
    other = declare(managed, "restart", name="other")
    failure = ValueError("the source is closed")

    run = run_dag(own_dag(failure, retries=1, on_failure_callback=notifier(managed)))

    assert task_states(run) == {"write": "failed"}
    expected = ["giving-up: feed.write: the source is closed"]
    assert (told(chat), told(page), told(other)) == (expected, expected, [])


def test_an_error_that_has_a_kind_comes_first_and_is_sent_once_a_day(managed: Managed) -> None:
    special, general = declare(managed, "checkpoint-lost"), declare(managed, "giving-up", name="general")
    lost = StorageError("It is gone.", code="checkpoint-lost", hint="Look for it.")

    for _ in range(2):
        run_dag(own_dag(lost, on_failure_callback=notifier(managed)))

    assert len(told(special)) == 1 and told(special)[0].startswith("checkpoint-lost: feed.write: ")
    assert len(told(general)) == 2


def test_any_callback_may_say_its_text(managed: Managed) -> None:
    file = declare(managed)
    text = "{{ ti.task_id }} of {{ dag.dag_id }} is done"

    run = run_dag(
        own_dag(None, on_success_callback=notifier(managed, job="flights/main", kind="restart", message=text))
    )

    assert task_states(run) == {"write": "success"}
    assert told(file) == ["restart: write of feed is done"]


@pytest.mark.parametrize("is_declared", [False, True])
def test_a_relative_file_or_application_is_found_beside_the_dag_file(
    managed: Managed, is_declared: bool
) -> None:
    file = declare(managed)
    given: dict[str, Any] = {"jobs_file": managed.jobs_file.name}
    if is_declared:
        told_by = {"class": FILE_NOTIFIER, "args": {"file": str(file), "text": "restart: Done."}}
        places = {one: str(managed.folder / one) for one in ("checkpoint", "repository")}
        job = {"application": "app.py", **places, "notify": [told_by]}
        given = {"jobs_file": None, "declaration": job}
    dag = own_dag(None, on_success_callback=notifier(managed, kind="restart", message="Done.", **given))
    dag.fileloc = str(managed.folder / "own.py")

    assert task_states(run_dag(dag)) == {"write": "success"}
    assert told(file) == ["restart: Done."]


def test_what_cannot_be_sent_is_logged_and_changes_nothing(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_dag(own_dag(None, on_success_callback=notifier(managed, job="trains")))

    assert task_states(run) == {"write": "success"}
    assert "No alert about job trains could be sent" in caplog.text


def test_the_triggerer_sends_it_too(managed: Managed) -> None:
    file = declare(managed)
    fields = {"job": "flights", "kind": "late-restore", "jobs_file": str(managed.jobs_file)}
    context = {"dag_run": {"dag_run_id": "late-1"}}  # what Airflow gives to the callback of a deadline
    trigger = CallbackTrigger(f"{JobNotifier.__module__}.JobNotifier", {**fields, "context": context})

    async def states() -> list[str]:
        return [event.payload["state"] async for event in trigger.run()]

    assert asyncio.run(states())[-1] == "success"
    assert told(file) == ["late-restore: late-1: its log says more"]


@pytest.mark.parametrize("kind", ["sla", "oops", ""])
def test_another_kind_is_refused_where_the_dag_is_read(managed: Managed, kind: str) -> None:
    with pytest.raises(InputError, match="kind must be one of giving-up"):
        notifier(managed, kind=kind)


def test_all_kinds_but_that_of_verdicts_are_known() -> None:
    assert set(KINDS) - set(KINDS_OF_TASKS) == {"sla"}
