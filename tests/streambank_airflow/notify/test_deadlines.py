"""A restore that takes too long is told of: Airflow's own deadlines, from the declaration to the notifier."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.models.dagrun import DagRun
from airflow.models.deadline import Deadline
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk.api.datamodels._generated import DagRunState as SdkDagRunState
from airflow.sdk.definitions.deadline import DeadlineAlert
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.timezone import utcnow
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import select

from streambank.core.errors import InputError
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.notify.deadlines import tell_late_restore
from tests.streambank_airflow.operators.test_base_declaration import given
from tests.streambank_airflow.triggers.test_triggerer import triggerer
from tests.support.airflow_face.metadata_db import write_dags
from tests.support.airflow_face.moved import CallbackTrigger
from tests.support.airflow_face.releases import BEFORE_3_2, BEFORE_3_3, needs_3_2
from tests.support.jobs.managed_job import BY, Managed
from tests.support.waiting import poll

NOTIFIERS = "tests.support.airflow_face.notifiers"
DEADLINE_NOTIFIERS = "tests.support.airflow_face.deadline_notifiers"


def declare(managed: Managed, *notifiers: str) -> None:
    managed.declare(f'\n[jobs.flights.restore]\ndeadline = "30m"\nnotify = [{", ".join(notifiers)}]\n')


def notifier(
    kind: str, path: Path, text: str = "{{ job }} at {{ dag_run.dag_run_id }}: {{ message }}"
) -> str:
    return f'{{class = "{DEADLINE_NOTIFIERS}.{kind}", args = {{path = "{path}", text = "{text}"}}}}'


def alerts(managed: Managed, verb: str = "restore") -> list[DeadlineAlert]:
    found = build_dags(managed.jobs_file)[f"flights.{verb}"].deadline
    return found if isinstance(found, list) else []


def missed(managed: Managed, run_id: str, state: DagRunState = DagRunState.QUEUED) -> CallbackTrigger:
    """Queue a run of the restore, let its deadline pass, and give back what Airflow's triggerer gets.

    Args:
        state: In which the run is when its deadline passes.
    """
    dag = build_dags(managed.jobs_file)["flights.restore"]
    write_dags(dag)
    with create_session() as session:
        stored = SerializedDagModel.get("flights.restore", session=session)
        assert stored is not None
        run = stored.dag.create_dagrun(
            run_id=run_id,
            logical_date=None,
            run_after=utcnow(),
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.QUEUED,
            session=session,
        )
        session.flush()
        deadline = session.scalar(select(Deadline).where(Deadline.dagrun_id == run.id))
        assert deadline is not None
        assert (deadline.deadline_time - run.queued_at).total_seconds() == 30 * 60
        run.state = state
        deadline.handle_miss(session)
        if BEFORE_3_2:
            return CallbackTrigger(**deadline.trigger.kwargs)
        data = deadline.callback.data
        return CallbackTrigger(data["path"], dict(data["kwargs"]))


def outcome(trigger: CallbackTrigger) -> dict[str, Any]:
    """How the callback ended in the triggerer."""

    async def last() -> Any:
        found = None
        async for event in trigger.run():
            found = event.payload
        return found

    payload: dict[str, Any] = asyncio.run(last())
    return payload


def test_a_restore_has_a_deadline_only_where_one_is_declared(managed: Managed) -> None:
    assert alerts(managed) == []

    declare(managed)

    (alert,) = alerts(managed)
    assert BEFORE_3_3 or alert.name == "restore"
    hash(alert)
    assert alerts(managed, "run") == []


@pytest.mark.usefixtures("airflow_database")
def test_that_of_a_declaration_keeps_who_is_told_and_where_the_job_is(
    managed: Managed, tmp_path: Path
) -> None:
    def told(name: str, **more: Any) -> dict[str, Any]:
        args = {"path": str(tmp_path / name), "text": "{{ message }}"}
        return {"class": f"{DEADLINE_NOTIFIERS}.Sync", "args": args, **more}

    declaration = given(
        managed,
        env=["PLANTED_ENV"],
        args=["--planted-args"],
        savepoint={"schedule": "@hourly"},
        replicate={"to": [str(tmp_path / "replica")], "lock": "30d"},
        standby={
            "checkpoint": str(tmp_path / "ck2"),
            "repository": str(tmp_path / "replica"),
            "args": ["--planted-there"],
        },
        restore={"deadline": "30m", "notify": [told("restore")], "ask": [told("planted-ask")]},
        notify=[
            told("all"),
            told("late", kinds=["replica-failed", "${KIND:-late-restore}"]),
            told("planted-other", kinds=["restart"]),
        ],
        sla={"notify": [told("planted-sla")]},
    )
    dag = build_dags(jobs=[declaration], only=["restore"])["flights.restore"]
    deadline: Any = dag.deadline
    kwargs = deadline[0].callback.kwargs
    context = {"dag_run": {"dag_run_id": "late-1", "state": "running"}}

    said = asyncio.run(tell_late_restore(**kwargs, context=context))

    assert "planted" not in json.dumps(kwargs).lower() and "is late" in said
    assert {one.name for one in tmp_path.iterdir() if one.is_file()} >= {"restore", "all", "late"}


@pytest.mark.usefixtures("airflow_database")
def test_everybody_is_told_when_it_is_late_whoever_cannot_be(managed: Managed, tmp_path: Path) -> None:
    here = [tmp_path / name for name in ("sync", "broken", "missing", "async")]
    declare(
        managed,
        notifier("Sync", here[0]),
        notifier("Broken", here[1]),
        notifier("Missing", here[2]),
        notifier("Async", here[3]),
    )

    ended = outcome(missed(managed, "late-1"))

    said = (
        "flights at late-1: The restore of job flights is late: run late-1 of flights.restore has not ended "
        "1800 s after it was queued."
    )
    assert [one.read_text() for one in here if one.exists()] == [said, f"async {said}"]
    assert ended["state"] == "failed"
    assert "deadline_notifiers.Broken: ConnectionError: no answer" in ended["body"]
    assert "deadline_notifiers.Missing cannot be loaded" in ended["body"]
    assert "bad-notifier" in ended["body"]


def test_one_that_hangs_or_shows_its_address_delays_no_other(
    managed: Managed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank_airflow.notify.send.PATIENCE_S", 0.5)
    hanging = f'{{class = "{NOTIFIERS}.HangingNotifier", args = {{file = "{tmp_path / "go on"}"}}}}'
    webhook = f'{{class = "{NOTIFIERS}.WebhookNotifier", args = {{url = "https://hooks.example/sEcReT99"}}}}'
    declare(managed, hanging, webhook, notifier("Async", tmp_path / "alert", "{{ kind }}"))
    (alert,) = alerts(managed)
    assert "sEcReT99" not in str(alert.callback.kwargs), "Airflow keeps them, and logs them"
    context = {"dag_run": {"dag_run_id": "late-3"}}

    ended = outcome(CallbackTrigger(alert.callback.path, {**alert.callback.kwargs, "context": context}))

    (tmp_path / "go on").touch()
    assert (tmp_path / "alert").read_text() == "async late-restore"
    assert ended["state"] == "failed"
    assert "HangingNotifier: it took longer than 0.5 s" in ended["body"]
    assert "WebhookNotifier: ConnectionError: POST ***" in ended["body"]
    assert "sEcReT99" not in ended["body"]


def test_one_that_an_earlier_version_has_queued_alerts_whom_it_names(
    managed: Managed, tmp_path: Path
) -> None:
    declare(managed)
    (alert,) = alerts(managed)
    path = str(tmp_path / "alert")
    named = json.dumps(
        [
            {
                "path": f"{DEADLINE_NOTIFIERS}.Sync",
                "args": {"path": path, "text": "{{ kind }}"},
                "least": "warn",
            }
        ]
    )
    arguments = {**alert.callback.kwargs, "notify": named, "context": {"dag_run": {"dag_run_id": "late-4"}}}

    outcome(CallbackTrigger(alert.callback.path, arguments))

    assert (tmp_path / "alert").read_text() == "late-restore"


def test_where_the_declaration_cannot_be_read_it_says_that_nobody_was_told(managed: Managed) -> None:
    declare(managed)
    (alert,) = alerts(managed)
    arguments = {
        **alert.callback.kwargs,
        "jobs_file": str(managed.folder / "gone.toml"),
        "context": {"dag_run": {"dag_run_id": "late-5"}},
    }

    ended = outcome(CallbackTrigger(alert.callback.path, arguments))

    assert ended["state"] == "failed"
    assert "is late" in ended["body"] and "No alert could be sent: " in ended["body"]


@pytest.mark.usefixtures("airflow_database")
def test_a_restore_that_has_ended_well_or_was_rejected_alerts_nobody(
    managed: Managed, tmp_path: Path
) -> None:
    declare(managed, notifier("Sync", tmp_path / "alert"))

    ended = outcome(missed(managed, "ended-1", DagRunState.SUCCESS))

    assert not (tmp_path / "alert").exists()
    assert (ended["state"], ended["body"]) == (
        "success",
        "The restore of job flights is not late: run ended-1 of flights.restore has succeeded.",
    )


@pytest.mark.usefixtures("airflow_database")
def test_a_restore_that_has_failed_is_not_called_late(managed: Managed, tmp_path: Path) -> None:
    declare(managed, notifier("Sync", tmp_path / "alert", "{{ kind }}: {{ message }}"))

    ended = outcome(missed(managed, "failed-1", DagRunState.FAILED))

    said = (
        "The restore of job flights has not succeeded: run failed-1 of flights.restore failed, and the job "
        "is not restored."
    )
    assert (ended["state"], ended["body"]) == ("success", said)
    assert (tmp_path / "alert").read_text() == f"late-restore: {said}"


@pytest.mark.usefixtures("airflow_database")
def test_a_failed_restore_alerts_nobody_where_another_has_restored_the_job_since(
    managed: Managed, tmp_path: Path
) -> None:
    declare(managed, notifier("Sync", tmp_path / "alert"))
    late = missed(managed, "failed-2", DagRunState.FAILED)
    generations = managed.control.generations()
    generations.ensure_first(managed.job.queries["main"], by=BY)
    restored = replace(
        generations.propose(taken=lambda _: False), from_savepoint="b1", by={"run_id": "second-try"}
    )
    generations.records.create(2, restored.to_dict())

    ended = outcome(late)

    assert not (tmp_path / "alert").exists()
    assert "has been restored since, by second-try" in ended["body"]


@pytest.mark.usefixtures("airflow_database")
def test_what_became_of_a_run_after_its_deadline_counts(
    managed: Managed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(managed, notifier("Sync", tmp_path / "alert"))
    late = missed(managed, "ended-2", DagRunState.RUNNING)
    asked: list[tuple[str, str]] = []

    def answer(dag_id: str, run_id: str) -> str:
        asked.append((dag_id, run_id))
        return SdkDagRunState.SUCCESS

    monkeypatch.setattr(RuntimeTaskInstance, "get_dagrun_state", staticmethod(answer))
    ended = outcome(late)

    assert asked == [("flights.restore", "ended-2")]
    assert not (tmp_path / "alert").exists()
    assert "has succeeded" in ended["body"]


@needs_3_2  # before, what a callback has returned is not kept
@pytest.mark.storm
@pytest.mark.usefixtures("airflow_database")
def test_airflows_own_triggerer_asks_what_became_of_a_run(managed: Managed, tmp_path: Path) -> None:
    from airflow.models.callback import Callback

    declare(managed, notifier("Sync", tmp_path / "alert"))
    missed(managed, "asked-for", DagRunState.RUNNING)
    with create_session() as session:
        run = session.scalar(select(DagRun).where(DagRun.run_id == "asked-for"))
        assert run is not None
        run.state = DagRunState.SUCCESS
        deadline = session.scalar(select(Deadline).where(Deadline.dagrun_id == run.id))
        assert deadline is not None
        callback_id = deadline.callback_id

    def told() -> str | None:
        with create_session() as session:
            return session.get_one(Callback, callback_id).output

    with triggerer(tmp_path):
        poll(told, timeout_s=120)

    assert "run asked-for of flights.restore has succeeded" in str(told())
    assert not (tmp_path / "alert").exists()


def test_without_notifiers_it_is_a_line_in_the_triggerers_log(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    declare(managed)
    (alert,) = alerts(managed)
    context = {"dag_run": {"dag_run_id": "late-2"}}

    ended = outcome(CallbackTrigger(alert.callback.path, {**alert.callback.kwargs, "context": context}))

    assert ended["state"] == "success"
    assert "The restore of job flights is late: run late-2" in caplog.text


def test_notifiers_without_a_deadline_are_a_mistake(managed: Managed) -> None:
    right = managed.jobs_file.read_text(encoding="utf-8")
    managed.declare('\n[jobs.flights.restore]\nnotify = [{class = "a.B"}]\n')
    with pytest.raises(InputError) as caught:
        build_dags(managed.jobs_file)
    managed.jobs_file.write_text(right, encoding="utf-8")
    assert "jobs.flights.restore.notify: it needs a deadline, and none is declared" in caught.value.message
