"""A real Airflow metadata database, made once for the tests of one process, and what they read from it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.configuration import conf
from airflow.providers.standard.triggers.hitl import HITLTrigger
from airflow.sdk.execution_time import task_runner
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it comes without types
from sqlalchemy import event

from tests.support.airflow_face.releases import BEFORE_3_2, BEFORE_3_3, WAITS_FOR_A_PERSON

if TYPE_CHECKING:
    from airflow.sdk import DAG
    from sqlalchemy.engine.interfaces import DBAPIConnection

    from tests.support.jobs.managed_job import Managed

_FINALIZE = task_runner.finalize
BUNDLE = "dags-folder"
"""The bundle of DAGs that tests write."""
LOOP_S = 0.1
"""How long `dag.test` waits in these tests before it looks again for tasks to run."""


@pytest.fixture(scope="session")
def airflow_database() -> Iterator[None]:
    """The schema, in the SQLite file that tests/conftest.py has pointed Airflow to before it was imported."""
    from airflow import settings
    from airflow.utils.db import initdb

    Path(conf.get_mandatory_value("core", "dags_folder")).mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        _check_each_schema_once(patch)
        assert settings.engine is not None and settings.async_engine is not None
        for engine in (settings.engine, settings.async_engine.sync_engine):
            event.listen(engine, "connect", _write_without_waiting)
        initdb()
        yield
    settings.dispose_orm()


def _write_without_waiting(connection: DBAPIConnection, _: object) -> None:
    """Nothing of this database is there after the tests: SQLite need not wait for the disk."""
    connection.cursor().execute("PRAGMA synchronous=OFF")


def _check_each_schema_once(patch: pytest.MonkeyPatch) -> None:
    """Airflow checks the schema of each field of a form whenever a task is written or run.

    That is a quarter of what a DAG costs in these tests, and the fields are the same in all of them.
    """
    check, seen = Draft202012Validator.check_schema, set()

    def check_once(schema: Mapping[str, object], *more: object, **how: object) -> None:
        text = json.dumps(schema, sort_keys=True, default=repr)
        if text not in seen:
            check(schema, *more, **how)
            seen.add(text)

    patch.setattr(Draft202012Validator, "check_schema", check_once)


def write_dags(*dags: DAG, bundle: str = BUNDLE) -> None:
    """Write DAGs to the database as the DAG processor does."""
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    _parsed(bundle, [LazyDeserializedDAG.from_dag(dag) for dag in dags], {})


def write_import_error(file: str, error: str, *dag_ids: str) -> None:
    """Write that a DAG file cannot be imported, as the DAG processor does.

    Args:
        dag_ids: DAGs that were written, which become those of this file.
    """
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        for dag_id in dag_ids:
            session.get_one(DagModel, dag_id).relative_fileloc = file
    _parsed(BUNDLE, [], {(BUNDLE, file): error})


def delete_import_errors() -> None:
    """Delete all of them, and take their DAGs out of all files."""
    from airflow.models.dag import DagModel
    from airflow.models.errors import ParseImportError
    from airflow.utils.session import create_session

    with create_session() as session:
        session.query(ParseImportError).delete()
        session.query(DagModel).filter(DagModel.has_import_errors.is_(True)).update(
            {"has_import_errors": False}
        )


def _parsed(bundle: str, dags: Sequence[Any], errors: dict[tuple[str, str], str]) -> None:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.utils.session import create_session

    with create_session() as session:
        bundles = DagBundlesManager()  # type: ignore[no-untyped-call]  # Airflow's has no types
        bundles.sync_bundles_to_db(session=session)
        session.commit()
        update_dag_parsing_results_in_db(bundle, None, dags, errors, None, set(), session=session)


def pause(dag_id: str, paused: bool = True) -> None:
    """Pause a DAG that was written, or (False) let it run; a new one is paused."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.get_one(DagModel, dag_id).is_paused = paused


def one_task(
    operator: Callable[..., Any], managed: Managed, dag_id: str = "one_task", **arguments: Any
) -> DAG:
    """A DAG with one task, on a declared job."""
    from airflow.sdk import DAG

    with DAG(dag_id, schedule=None) as dag:
        operator(**{"task_id": "task", "job": "flights", "jobs_file": managed.jobs_file, **arguments})
    return dag


def run_dag(dag: DAG, **how: Any) -> Any:
    """Write a DAG to the database, and run it once with `dag.test`.

    That waits for a whole second each time that it finds nothing to run, as after each task that is skipped.
    """
    write_dags(dag)
    sleep = time.sleep

    def sleep_less(seconds: float) -> None:
        asked_by = sys._getframe(1).f_globals.get("__name__")
        sleep(min(seconds, LOOP_S) if asked_by == type(dag).__module__ else seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", sleep_less)
        if BEFORE_3_3:
            patch.setattr(task_runner, "finalize", _finalize_as_a_worker)
            patch.setattr(f"{HITLTrigger.__module__}.get_hitl_detail_content_detail", _answer_so_far)
        return dag.test(**how)


def _finalize_as_a_worker(ti: Any, state: Any, context: Any, log: Any, error: Any) -> None:
    """Callbacks of `dag.test` do not get the task's exception before 3.3; those of a worker do."""
    context["exception"] = error
    _FINALIZE(ti, state, context, log, error)


def _answer_so_far(ti_id: Any) -> Any:
    """What the trigger of an approval asks a triggerer's API; `dag.test` before 3.3 answers it with None."""
    from airflow.models.hitl import HITLDetail
    from airflow.utils.session import create_session

    with create_session() as session:
        detail = session.get_one(HITLDetail, str(ti_id) if BEFORE_3_2 else ti_id)
        return SimpleNamespace(
            response_received=detail.response_received,
            responded_at=detail.responded_at,
            responded_by_user=SimpleNamespace(**detail.responded_by) if detail.responded_by else None,
            chosen_options=detail.chosen_options,
            params_input=detail.params_input,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """What a person saw who answered."""

    subject: str
    body: str
    options: list[str]
    assignees: list[dict[str, str]]


def answer_question(
    dag_id: str,
    task_id: str,
    option: str,
    within_s: float = 240.0,
    before: Callable[[], None] = lambda: None,
) -> Question:
    """Answer a human-in-the-loop task of the newest run as the API server does when a person has clicked.

    Args:
        option: What the person clicks, which has to be offered.
        before: What happens after the question was asked and before the answer.
    """
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import handle_event_submit
    from airflow.sdk.timezone import utcnow
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session
    from airflow.utils.state import State, TaskInstanceState
    from sqlalchemy import select

    waiting = [TaskInstanceState(WAITS_FOR_A_PERSON)]
    if BEFORE_3_3:  # `dag.test` queues it again while it runs the trigger
        waiting.append(TaskInstanceState.QUEUED)
    deadline = time.monotonic() + within_s
    shown: Question | None = None
    asked: Any = None
    while time.monotonic() < deadline:
        with create_session() as session:
            task = session.scalar(
                select(TaskInstance).where(TaskInstance.id == asked)
                if asked is not None
                else select(TaskInstance)
                .where(TaskInstance.dag_id == dag_id, TaskInstance.task_id == task_id)
                .where(TaskInstance.state.in_(waiting))
            )
            detail = session.get(HITLDetail, task.id) if task is not None else None
            if task is not None and detail is not None and task.state in waiting:
                if shown is None:
                    before()
                    assert option in detail.options
                    shown = Question(
                        detail.subject, detail.body or "", list(detail.options), list(detail.assignees or ())
                    )
                    asked = task.id
                detail.responded_by = {"id": "1", "name": "somebody"}
                detail.responded_at = utcnow()
                detail.chosen_options = [option]
                detail.params_input = {}
                if not BEFORE_3_3:  # where the trigger looks for the answer by itself
                    payload = detail.as_resume_event_payload()
                    event = TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow's has no types
                    handle_event_submit(event, task_instance=task, session=session)
            elif shown is not None and (task is None or task.state in State.finished):
                return shown
        # `dag.test` may write once more that the task waits, over an answer that came at once: look again.
        time.sleep(0.2)
    raise AssertionError(f"{dag_id}.{task_id} asked nothing, or took no answer, within {within_s} s")


def xcom(run: Any, task_id: str, key: str = "return_value") -> Any:
    """A value that a task of a finished run has left; None where there is none."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        row = session.execute(
            XComModel.get_many(
                key=key, run_id=run.run_id, dag_ids=run.dag_id, task_ids=task_id
            ).with_only_columns(XComModel.value)
        ).first()
    value = None if row is None else row.value
    # Values of tasks are stored as JSON; what the runner itself stores for links is the bare text.
    return json.loads(value) if isinstance(value, str) and value.startswith(("{", "[", '"')) else value


def task_states(run: Any) -> dict[str, str]:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.execute(
            select(TaskInstance.task_id, TaskInstance.state).where(
                TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id
            )
        ).all()
    return {task_id: str(state) for task_id, state in rows}


def asset_events(uri: str = "streambank://savepoints/flights") -> list[dict[str, Any]]:
    """The extras of all events so far of an asset; of the job's savepoints where none is named."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(
            select(AssetEvent.extra)
            .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
            .where(AssetModel.uri == uri)
            .order_by(AssetEvent.id)
        ).all()
    return [json.loads(json.dumps(row)) for row in rows]
