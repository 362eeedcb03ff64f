"""DAGs of jobs that no jobs file declares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from streambank.core.errors import InputError, StorageError
from streambank.declaration.streaming_job import StreamingJob
from streambank_airflow.dags.common import read_for_dags
from streambank_airflow.dags.groups import restore_group, savepoint_group
from streambank_airflow.dags.jobs import VERBS, build_dags
from streambank_airflow.hooks import values
from tests.streambank_airflow.operators.test_base_declaration import given
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.jobs.managed_job import Managed
from tests.support.refuses import refuses

pytestmark = pytest.mark.usefixtures("airflow_database")


def job(folder: Path, name: str, **more: Any) -> StreamingJob:
    return StreamingJob(
        name=name,
        application=folder / "app.py",
        checkpoint=folder / "ck" / name,
        repository=folder / "repository",
        **more,
    )


def test_each_job_has_its_dags_whose_tasks_carry_the_declaration(tmp_path: Path) -> None:
    jobs: list[Any] = [job(tmp_path, "a", restore={"deadline": "1h"}), job(tmp_path, "b").to_dict()]

    dags = build_dags(jobs=jobs)

    assert {name.partition(".")[0] for name in dags} == {"a", "b"}
    assert "a.restore" in dags and "b.savepoint" in dags
    start: Any = dags["a.run"].get_task("start")
    assert (start.job, start.jobs_file) == ("a", None)
    assert start.declaration["checkpoint"] == str(tmp_path / "ck/a")
    for dag in dags.values():
        DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))


def test_such_a_dag_runs(managed: Managed) -> None:
    dags = build_dags(jobs=[given(managed)], only=["run", "stop", "savepoint"])
    managed.start(until=2)

    run = run_dag(dags["flights.savepoint"])

    assert task_states(run)["take"] == "success"
    assert set(task_states(run_dag(dags["flights.stop"])).values()) == {"success"}
    assert managed.desired.state == "stopped"


def test_a_mistake_in_one_takes_no_dag_of_another_away(tmp_path: Path) -> None:
    dags = build_dags(jobs=[job(tmp_path, "a"), job(tmp_path, "b", tags="x")])

    assert {f"a.{verb}" for verb in VERBS if verb in ("run", "stop", "sla")} <= set(dags)
    assert {name for name in dags if name.startswith("b.")} == {"b.run", "b.sla"}
    assert "Declaration of job b: tags: it must be a list" in str(dags["b.run"].description)


def test_one_place_declares_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMBANK_JOBS", raising=False)
    with refuses(InputError, "bad-option", hint="Leave one of them out"):
        build_dags("x.toml", jobs=[job(tmp_path, "a")])
    with refuses(InputError, "no-declaration"):
        build_dags()
    with refuses(InputError, "bad-declaration", hint="its own name"):
        build_dags(jobs=[job(tmp_path, "a"), job(tmp_path, "a")])


def test_a_repository_may_be_that_of_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"conn_type": "streambank", "extra": {"repository": str(tmp_path / "shared")}}
    monkeypatch.setenv("AIRFLOW_CONN_EU", json.dumps(place))
    bare = {name: one for name, one in job(tmp_path, "a").to_dict().items() if name != "repository"}

    dags = build_dags(jobs=[bare], streambank_conn_id="eu", only=["run"])

    start: Any = dags["a.run"].get_task("start")
    assert start.hook.declared.job("a").repository == f"file://{tmp_path}/shared"


def test_a_job_with_a_connection_of_its_own_has_the_repository_of_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PROD", "TEST"):
        place = {"conn_type": "streambank", "extra": {"repository": str(tmp_path / name)}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(place))
    monkeypatch.setenv("AIRFLOW_VAR_STAGE", "prod")
    own = {"airflow": {"connection": "${var:stage}"}, "repository": None}
    a, b = {**job(tmp_path, "a").to_dict(), **own}, {**job(tmp_path, "b").to_dict(), "repository": None}
    c = {**b, "name": "c", "checkpoint": str(tmp_path / "ck/c"), "airflow": {"connection": "no-such"}}

    declared, file = read_for_dags(None, [a, b, c], None, "test")

    assert [declared.job(one).repository for one in "ab"] == [
        f"file://{tmp_path}/{one}" for one in ("PROD", "TEST")
    ]
    assert declared.broken["c"].error.code == "no-connection", "a mistake of this job alone"
    assert all("repository" not in one for one in file.declarations.values())
    dags = build_dags(jobs=[a], only=["run"])
    assert "broken" not in dags["a.run"].tags, "the default connection is not asked"


def test_an_airflow_that_does_not_answer_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(conn_id: str) -> Any:
        raise ConnectionError("no API server")

    monkeypatch.setattr(values, "find_connection", fail)
    with refuses(StorageError, "airflow-not-reached") as caught:
        build_dags(jobs=[job(tmp_path, "a", args=["${conn:lake.host}"])])
    assert "See whether the API server and the secrets backend answer" in caught.value.message


def test_groups_take_a_declaration(tmp_path: Path) -> None:
    declared = job(tmp_path, "a", replicate={"to": [tmp_path / "replica"]})
    with DAG("own", schedule=None) as dag:
        savepoint_group("a", declaration=declared)
        restore_group("a", declaration=declared.to_dict())

    assert "savepoint.replicate" in dag.task_ids
    for name in ("savepoint.take", "restore.plan"):
        task: Any = dag.get_task(name)
        assert task.declaration["name"] == "a" and task.jobs_file is None
