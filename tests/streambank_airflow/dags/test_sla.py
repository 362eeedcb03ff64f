"""`<job>.sla`, from a job's own records to whoever is told, with Airflow's own database."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.declaration.load import load_jobs
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.dags.stagger import staggered
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.airflow_face.notifiers import FILE_NOTIFIER, told
from tests.support.jobs.slow_job import commit, slow_job

pytestmark = pytest.mark.usefixtures("airflow_database")


def sla_dag(jobs_file: Path) -> DAG:
    return build_dags(jobs_file, default_args={"retries": 0})["flights.sla"]


def verdict(run: Any) -> tuple[str, str]:
    """Level and reason of what is declared."""
    (found,) = [one for one in xcom(run, "check")["verdicts"] if one["objective"] == "batch_duration"]
    return found["level"], found["why"]


def test_a_breach_fails_runs_until_it_heals_and_is_told_once(tmp_path: Path) -> None:
    said = f'{{class = "{FILE_NOTIFIER}", args = {{file = "{tmp_path / "chat"}"}}}}'
    jobs_file = slow_job(tmp_path, f'schedule = "*/10 * * * *"\nnotify = [{said}]\n')
    dag = sla_dag(jobs_file)
    assert dag.timetable.can_be_scheduled

    states = []
    for took_s in (1.0, 60.0, 61.0, 2.0):
        commit(jobs_file, took_s)
        run = run_dag(dag)
        states.append((task_states(run)["check"], verdict(run)[0]))

    assert states == [("success", "ok"), ("failed", "breach"), ("failed", "breach"), ("success", "ok")]
    assert told(tmp_path / "chat") == [
        "flights batch_duration broke breach",
        "flights batch_duration healed ok",
    ]
    assert "2 s" in verdict(run)[1]


def test_a_person_may_look_without_failing_and_without_telling(tmp_path: Path) -> None:
    said = f'{{class = "{FILE_NOTIFIER}", args = {{file = "{tmp_path / "chat"}"}}}}'
    jobs_file = slow_job(tmp_path, f"notify = [{said}]\n")
    dag = sla_dag(jobs_file)
    assert str(dag.schedule) == "*/10 * * * *"
    (tmp_path / "two").mkdir()
    two = slow_job(tmp_path / "two", "")
    two.write_text(
        two.read_text() + '[jobs.trains]\napplication = "app.py"\ncheckpoint = "checkpoints/trains"\n'
    )
    shifted = staggered("*/10 * * * *", "flights", 600.0)
    assert str(sla_dag(two).schedule) == shifted, "at minutes of its own"
    (tmp_path / "never").mkdir()
    never = slow_job(tmp_path / "never", 'schedule = "never"\n')
    assert not sla_dag(never).timetable.can_be_scheduled
    commit(jobs_file, 60.0)

    run = run_dag(dag, run_conf={"on_breach": "warn", "tell": False, "skew": False})

    assert task_states(run) == {"check": "success", "doctor": "success"}
    assert verdict(run)[0] == "breach"
    assert told(tmp_path / "chat") == []


def test_a_checkpoint_that_cannot_be_read_is_a_breach_and_not_silence(tmp_path: Path) -> None:
    jobs_file = slow_job(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")

    run = run_dag(sla_dag(jobs_file))

    assert task_states(run) == {"check": "failed", "doctor": "failed"}
    assert "There is no directory" in xcom(run, "check")["worst"]


def test_a_run_that_watches_no_more_is_found_by_asking_airflow(tmp_path: Path) -> None:
    """Marked as success, say: the signs that it left last are still young."""
    jobs_file = slow_job(tmp_path)
    ended = run_dag(sla_dag(jobs_file))
    records = load_jobs(jobs_file).job("flights").records()
    by = {"dag_id": ended.dag_id, "run_id": ended.run_id}
    records.watches.begin(by=by, desired=records.set_desired("running", by=by).number)

    run = run_dag(sla_dag(jobs_file))

    view = records.watches.view()
    assert view is not None and view.idle["why"] == f"its run is over ({ended.state})"
    assert task_states(run)["doctor"] == "failed"
    assert "not-watched" in xcom(run, "doctor")["worst"]
