"""`<job>.failover`: by its form, at both sites, with drivers without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.core.names import PRIMARY, STANDBY
from streambank.job.status import job_status
from streambank.sites.records import Sites
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.approve import PLAN_KEY, SUBJECT_KEY
from tests.support.airflow_face.metadata_db import answer_question, run_dag, task_states, write_dags, xcom
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.managed_job import Managed, hand_over

pytestmark = pytest.mark.timeout(180)

STANDBY_TABLE = """
[jobs.flights.replicate]
to = ["there/savepoints"]
[jobs.flights.standby]
checkpoint = "there/checkpoint"
repository = "there/savepoints"
"""


@pytest.fixture
def two(managed: Managed) -> Iterator[Managed]:
    """The job, with a standby."""
    managed.declare(STANDBY_TABLE)
    yield managed
    end_drivers(managed.job.at_site(STANDBY).records())


def test_it_is_made_for_a_job_with_a_standby(tmp_path: Path) -> None:
    job = 'repository = "r"\n[jobs.flights]\napplication = "a.py"\ncheckpoint = "c"\n'
    (tmp_path / "jobs.toml").write_text(job, encoding="utf-8")
    assert "flights.failover" not in build_dags(tmp_path / "jobs.toml")
    (tmp_path / "jobs.toml").write_text(job + STANDBY_TABLE, encoding="utf-8")
    dag = build_dags(tmp_path / "jobs.toml")["flights.failover"]
    assert not dag.timetable.can_be_scheduled and dag.max_active_runs == 1
    assert (dag.params["to"], dag.params["is_down"], dag.params["sink"]) == ("other", "none", "refuse")
    assert dag.task_ids == ["check_run", "plan", "approve", "failover", "keep_running", "watched"]
    assert dag.get_task("failover").upstream_task_ids == {"approve"}
    (tmp_path / "jobs.toml").write_text(job + STANDBY_TABLE + "approve = false\n", encoding="utf-8")
    dag = build_dags(tmp_path / "jobs.toml")["flights.failover"]
    assert dag.task_ids == ["check_run", "failover", "keep_running", "watched"]


@pytest.mark.storm
def test_it_goes_on_at_the_other_site_and_comes_back(
    airflow_database: None, two: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = StreambankHook(jobs_file=str(two.jobs_file))
    hand_over(lambda: hook.declared.job("flights").records(), monkeypatch)
    two.start(until=2)
    dags = build_dags(two.jobs_file)
    dag = dags["flights.failover"]
    write_dags(dags["flights.run"])

    question = threading.Thread(target=lambda: answer_question("flights.failover", "approve", "Reject"))
    question.start()
    states = task_states(run_dag(dag))
    question.join(60)
    assert (states["plan"], states["approve"], states["failover"]) == ("success", "success", "skipped")
    assert hook.declared.job("flights").site == PRIMARY and job_status(two.job).state == "running"

    question = threading.Thread(target=lambda: answer_question("flights.failover", "approve", "Approve"))
    question.start()
    run = run_dag(dag, run_conf={"note": "maintenance"})
    question.join(60)
    tasks = ("check_run", "plan", "approve", "failover", "keep_running", "watched")
    done = dict.fromkeys(tasks, "success")
    assert task_states(run) == done
    assert xcom(run, "approve")["chosen_options"] == ["Approve"]
    assert "Fail over job flights to the standby?" in xcom(run, "plan", SUBJECT_KEY)
    assert "It is fenced first" in xcom(run, "plan", PLAN_KEY)
    result = xcom(run, "failover")
    assert (result["site"], result["fenced"], result["rpo_s"]) == (STANDBY, True, 0)
    there = hook.declared.job("flights")
    assert there.site == STANDBY and job_status(there).state == "running"
    assert job_status(two.job).state == "stopped"

    assert task_states(run_dag(dag, run_conf={"to": PRIMARY}, mark_success_pattern="approve")) == done
    assert hook.declared.job("flights").site == PRIMARY
    assert (job_status(two.job).state, job_status(there).state) == ("running", "stopped")


@pytest.mark.storm
def test_a_site_that_does_not_answer_is_refused(airflow_database: None, two: Managed) -> None:
    two.start(until=2)
    end_drivers(two.control)
    records = two.folder / "repository.control"
    records.rename(two.folder / "aside")
    try:
        run = run_dag(build_dags(two.jobs_file)["flights.failover"])
        assert (task_states(run)["plan"], task_states(run)["failover"]) == ("failed", "upstream_failed")
        known = Sites(two.job.at_site(STANDBY).records()).newest()
        assert known is not None and (known.number, known.active) == (1, PRIMARY), "nothing was recorded"
    finally:
        (two.folder / "aside").rename(records)
