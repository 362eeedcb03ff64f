"""A real Airflow metadata database, made once for the tests of one process, and what they read from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.configuration import conf

if TYPE_CHECKING:
    from airflow.sdk import DAG


@pytest.fixture(scope="session")
def airflow_database() -> Iterator[None]:
    """The schema, in the SQLite file that tests/conftest.py has pointed Airflow to before it was imported."""
    from airflow.utils.db import initdb

    Path(conf.get_mandatory_value("core", "dags_folder")).mkdir(parents=True, exist_ok=True)
    initdb()
    yield
    from airflow import settings

    settings.dispose_orm()


def run_dag(dag: DAG, **how: Any) -> Any:
    """Write a DAG to the database as the DAG processor does, and run it once with `dag.test`."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)
        session.commit()
        update_dag_parsing_results_in_db(
            "dags-folder", None, [LazyDeserializedDAG.from_dag(dag)], {}, None, set(), session=session
        )
    return dag.test(**how)


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
    return None if row is None else json.loads(row.value) if isinstance(row.value, str) else row.value


def task_states(run: Any) -> dict[str, str]:
    """The state of each task of a run."""
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
