"""The DAG of a repository: verified, repaired, swept, and its replicas looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError
from streambank.replicas.replicate import replicate
from streambank.repository.catalog import listed
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank_airflow.dags.jobs import build_dags
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.repository.repositories import FILES, flip, save
from tests.support.storage.contents import keys

JOBS = """
repository = "repository"
[maintenance]
share = "100%"
{}
[defaults.airflow]
retries = 0
[jobs.flights]
application = "a.py"
checkpoint = "a"
[jobs.flights.replicate]
to = ["replica"]
[jobs.other]
application = "b.py"
checkpoint = "b"
"""


def declare(folder: Path, more: str = "") -> Path:
    file = folder / "jobs.toml"
    file.write_text(JOBS.format(more), encoding="utf-8")
    return file


def dag_of(folder: Path, more: str = "", **how: Any) -> Any:
    (dag,) = build_dags(
        declare(folder, more), only="maintenance", default_args={"retries": 0}, **how
    ).values()
    return dag


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    opened = Repository.open(open_store(tmp_path / "repository"), create=True)
    for batch in range(1, 4):
        save(opened, {**FILES, "offsets/3": b"%d" % batch * 100}, batch=batch)
    save(opened, job="other")
    return opened


def test_it_is_one_dag_beside_those_of_the_jobs(tmp_path: Path) -> None:
    file = declare(tmp_path, 'schedule = "@weekly"\ndag_id = "eu.maintenance"')
    dags = build_dags(file, dag_args={"tags": ["night"]}, default_args={"owner": "us"})
    dag = dags["eu.maintenance"]
    schedule: Any = dag.schedule
    assert len(dags) == 19 and schedule == "@weekly" and dag.tags >= {"streambank", "night"}
    assert dag.task_ids == [
        "verify_flights",
        "repair_flights",
        "verify_other",
        "sweep",
        "replicas",
    ]
    assert {task.owner for task in dag.tasks} == {"us"}
    assert dag_of(tmp_path, "repair = false\nsweep = false").task_ids == [
        "verify_flights",
        "verify_other",
        "replicas",
    ]
    with pytest.raises(InputError, match=r"maintenance\.shares: there is no such field"):
        dag_of(tmp_path, 'shares = "1%"')


def test_what_a_job_has_left_is_removed_where_that_is_declared(tmp_path: Path) -> None:
    file = declare(tmp_path)
    file.write_text(file.read_text() + "[jobs.other.generations]\nkeep = 3\n")
    (dag,) = build_dags(file, only="maintenance").values()
    assert [one for one in dag.task_ids if one.startswith("clean")] == ["clean_other"]
    clean = dag.get_task("clean_other")
    assert clean.upstream_task_ids == {"verify_other"} and clean.trigger_rule == "none_failed"


def test_what_is_damaged_comes_back_from_a_replica(
    airflow_database: None, repository: Repository, tmp_path: Path
) -> None:
    replica = Repository.open(open_store(tmp_path / "replica"), create=True)
    list(replicate(repository, replica, listed(repository.store, "flights")))
    run = run_dag(dag_of(tmp_path))
    assert task_states(run) == {
        "verify_flights": "success",
        "repair_flights": "skipped",
        "verify_other": "success",
        "sweep": "success",
        "replicas": "success",
    }

    for key in keys(repository.store, "packs"):
        flip(repository.store, key)
    run = run_dag(dag_of(tmp_path))

    states = task_states(run)
    assert (states["verify_flights"], states["repair_flights"]) == ("failed", "success")
    assert (states["verify_other"], states["sweep"]) == ("failed", "upstream_failed"), "it has no replica"
    assert xcom(run, "repair_flights")["repaired"]
    for each in repository.manifests("flights"):
        assert verify(repository, "flights", each.savepoint, "full").ok


@pytest.mark.storm
def test_a_replica_that_is_behind_fails_the_run(
    airflow_database: None, repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Repository.open(open_store(tmp_path / "replica"), create=True)
    run = run_dag(dag_of(tmp_path))
    assert task_states(run)["replicas"] == "failed"
    assert "lacks 3 savepoints of job flights. Hint: see why the task replicate" in capfd.readouterr().out


def test_a_job_without_savepoints_is_whole(airflow_database: None, tmp_path: Path) -> None:
    save(Repository.open(open_store(tmp_path / "repository"), create=True), job="other")
    states = task_states(run_dag(dag_of(tmp_path, "sweep = false")))
    assert (states["verify_other"], states["verify_flights"]) == ("success", "success")
