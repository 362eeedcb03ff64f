"""Arguments of task groups that only a run knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from streambank.core.errors import InputError
from streambank_airflow.dags.groups import restore_group, savepoint_group
from tests.support.airflow_face.moved import DagSerialization
from tests.support.jobs.declared import declare


@task
def found() -> str:
    return "of another task"


@pytest.mark.parametrize(
    "name", ["savepoint", "repository", "sink", "source", "mode", "sink_of", "new_sinks"]
)
@pytest.mark.parametrize("template", [True, False])
def test_a_restore_takes_what_another_task_has_found(tmp_path: Path, name: str, template: bool) -> None:
    declare(tmp_path)
    with DAG("own", schedule=None) as dag:
        value: Any = "{{ params.found }}" if template else found()
        restore_group("flights", jobs_file=tmp_path / "streaming_jobs.toml", **{name: value})
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
    planned = dag.get_task("restore.plan")
    assert getattr(planned, name) == value
    assert template or planned.upstream_task_ids == {"found"}


def test_a_savepoint_does_so_too(tmp_path: Path) -> None:
    declare(tmp_path)
    with DAG("own", schedule=None) as dag:
        given: Any = {"pin": found(), "verify": found(), "note": "{{ run_id }}"}
        savepoint_group("flights", jobs_file=tmp_path / "streaming_jobs.toml", **given)
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert dag.get_task("savepoint.take").upstream_task_ids == {"found"}
    assert "found__1" in dag.get_task("savepoint.verify").upstream_task_ids


@pytest.mark.parametrize(
    ("group", "name", "instead"),
    [
        *((restore_group, name, "RestoreSavepointOperator") for name in ("start", "stop_running", "approve")),
        (savepoint_group, "leave_out", "CreateSavepointOperator"),
        (restore_group, "job", "RestoreSavepointOperator"),
        (savepoint_group, "job", "CreateSavepointOperator"),
        (savepoint_group, "jobs_file", "CreateSavepointOperator"),
    ],
)
@pytest.mark.parametrize("template", [True, False])
def test_what_the_tasks_depend_on_is_refused_when_the_dag_is_read(
    tmp_path: Path, group: Any, name: str, instead: str, template: bool
) -> None:
    declare(tmp_path)
    with DAG("own", schedule=None), pytest.raises(InputError, match=f"^{name} of a group must be") as caught:
        value: Any = "{{ params.found }}" if template else found()
        group(**{"job": "flights", "jobs_file": tmp_path / "streaming_jobs.toml", name: value})
    assert caught.value.code == "bad-option" and instead in caught.value.hint


@pytest.mark.parametrize("name", ["sink", "source", "mode"])
def test_what_is_known_is_checked_when_the_dag_is_read(tmp_path: Path, name: str) -> None:
    declare(tmp_path)
    unknown: Any = {name: "fork"}
    with DAG("own", schedule=None), pytest.raises(InputError, match=f"{name} must be one of"):
        restore_group("flights", jobs_file=tmp_path / "streaming_jobs.toml", **unknown)
