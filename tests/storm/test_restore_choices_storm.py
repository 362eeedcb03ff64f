"""A job that lives is judged, and restored as one run by Airflow's REST: asked, chosen, done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from demo.job import FlightsJob
from demo.places import ROOT
from demo.rest import RestError
from tests.support.airflow_face.live_airflow import LiveAirflow, live_airflow
from tests.support.airflow_face.releases import BEFORE_3_3, WAITS_FOR_A_PERSON

pytestmark = [pytest.mark.spark, pytest.mark.airflow, pytest.mark.storm, pytest.mark.timeout(1200)]

JOB = "flights"
CHOICES = [
    "Stop the job, restore and set later output aside",
    "Stop the job, restore and leave later output",
    "Reject",
]


@pytest.fixture
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    with live_airflow(tmp_path_factory.mktemp("choices") / "demo") as airflow:
        target = airflow.places.data / "input"
        target.mkdir(exist_ok=True)
        command = [sys.executable, str(ROOT / "spark_jobs" / "flights" / "replay.py"), str(target)]
        command += ["--rows-per-file", "1500", "--gap-ms", "4000"]
        replay = subprocess.Popen(command, env=airflow.environment, stdout=subprocess.DEVNULL)
        try:
            yield airflow
        finally:
            replay.terminate()
            replay.wait()


def nothing() -> None:
    """Nothing is to be done meanwhile."""


def judge(airflow: LiveAirflow) -> None:
    """`<job>.sla` finds a job well that runs."""
    client, dag_id = airflow.client, f"{JOB}.sla"
    client.unpause(dag_id)
    run = client.trigger(dag_id, {})
    assert airflow.wait_for_end(dag_id, run, nothing) == "success", client.why(dag_id, run)
    assert airflow.states(dag_id, run) == {"check": "success", "doctor": "success"}
    verdicts = client.result(dag_id, run, "check")["verdicts"]
    levels = {one["objective"]: one["level"] for one in verdicts}
    assert {levels[one] for one in ("alive", "progress_age", "state_bytes")} == {"ok"}, levels


def test_one_run_asks_stops_restores_and_starts(airflow: LiveAirflow) -> None:
    job = FlightsJob(JOB, f"{airflow.places.repository}.control")
    client, dag_id = airflow.client, f"{JOB}.restore"
    client.wait_for_task(f"{JOB}.run", client.trigger(f"{JOB}.run", {}), "start", timeout_s=400)
    job.wait_for_batch(2, timeout_s=300, meanwhile=nothing)
    saved = client.trigger(f"{JOB}.savepoint", {})
    assert airflow.wait_for_end(f"{JOB}.savepoint", saved, nothing) == "success"
    last = job.last_commit()
    assert last is not None
    job.wait_for_batch(last.number + 2, timeout_s=300, meanwhile=nothing)
    drivers = {one.pid for one in job.driver()}
    judge(airflow)

    run = client.trigger(dag_id, {})
    assert airflow.wait_for(dag_id, run, "approve", WAITS_FOR_A_PERSON, nothing)
    (question,) = client.open_questions(dag_id, run)
    assert question["options"] == CHOICES
    assert "It runs, and will be stopped." in question["subject"]
    assert "were written since" in question["subject"]
    assert {one.pid for one in job.driver()} == drivers
    if not BEFORE_3_3:  # whose API takes what was not offered; the task fails then
        with pytest.raises(RestError):
            client.answer(dag_id, run, "approve", "Approve")

    approve = partial(airflow.approve, dag_id, run, CHOICES[0])
    assert airflow.wait_for_end(dag_id, run, approve) == "success"
    states = airflow.states(dag_id, run)
    assert states.pop("restore_into") == "skipped"
    assert set(states.values()) == {"success"}
    generation = job.records().generation()
    assert generation is not None
    assert generation.number == 2
    now = {one.pid for one in job.driver()}
    assert now and not now & drivers

    # A run that has asked is not asked again with its old plan.
    body = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
    client.call("POST", f"/api/v2/dags/{dag_id}/clearTaskInstances", body)
    assert airflow.wait_for_end(dag_id, run, nothing) == "failed"
    assert airflow.states(dag_id, run)["approve"] == "failed"
    assert {one.pid for one in job.driver()} == now
