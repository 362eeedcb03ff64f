"""The examples of one's own DAGs by their schedules: scheduler, triggerer and workers live, without Spark.

What stands in for Spark is the public fake, so this shows too that other processes find its jobs.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streambank_airflow.testing import FakeJobs
from tests.support.airflow_face.live_airflow import QUICK, LiveAirflow, live_airflow
from tests.support.paths import ROOT
from tests.support.waiting import poll

pytestmark = [pytest.mark.airflow, pytest.mark.storm, pytest.mark.timeout(1800)]
SCHEDULED = (
    *("three_jobs", "nightly_proof", "maintenance", "own_channel", "disaster_exercise"),
    "jobs_from_table",
)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeJobs]:
    with FakeJobs(tmp_path_factory.mktemp("own") / "jobs") as jobs:
        places = {"checkpoint": "west/flights", "repository": "west/savepoints", "control": "west/control"}
        jobs.declare(
            "flights",
            args=["--output", str(jobs.directory / "output")],
            replicate={"to": ["west/savepoints"]},
            standby=places,
        ).start()
        jobs.declare("delays").start()
        jobs.declare("sessions")
        yield jobs


def table_of(jobs: FakeJobs) -> Path:
    file = jobs.directory / "table.db"
    with closing(sqlite3.connect(file)) as table:
        table.execute("CREATE TABLE jobs (name, application, topic)")
        table.executemany("INSERT INTO jobs VALUES (?, 'application.py', 'orders')", [["north"], ["south"]])
        table.commit()
    return file


@pytest.fixture(scope="module")
def airflow(jobs: FakeJobs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    """An Airflow with the examples, in which each cron has come to its minute."""
    folder = tmp_path_factory.mktemp("dags")
    for file in (ROOT / "examples" / "dags").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for place in ("/var/lib/streambank", "/var/lib/lake", "/opt/jobs"):
            text = text.replace(place, str(jobs.directory))
        text = text.replace('"local[2]"', f'"local[1]", "spark_home": "{jobs.directory}/spark"')
        if file.stem in SCHEDULED:
            text = re.sub(r'schedule="[^"]+"', 'schedule="* * * * *"', text)
        (folder / file.name).write_text(text, encoding="utf-8")
    kind = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [{"name": "own", "classpath": kind, "kwargs": {"path": str(folder)}}]
    settings = {
        **QUICK,
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "AIRFLOW_CONN_STREAMBANK_DEFAULT": json.dumps({"conn_type": "streambank"}),
        "AIRFLOW_CONN_JOBS_TABLE": json.dumps({"conn_type": "generic", "host": str(table_of(jobs))}),
        "STREAMBANK_JOBS": str(jobs.jobs_file),
    }
    with live_airflow(tmp_path_factory.mktemp("live") / "airflow", settings, jobs=()) as airflow:
        poll(lambda: {*SCHEDULED, "upgrade_with_approval", "flights.hours"} <= airflow.dags(), timeout_s=300)
        assert airflow.client.import_errors() == []
        yield airflow


def nothing() -> None:
    """Nothing is to be done meanwhile."""


def first_run(airflow: LiveAirflow, dag_id: str) -> str:
    """The id of the first run that nobody has triggered."""
    asked = "SELECT run_id FROM dag_run WHERE dag_id = ? AND run_type != 'manual' ORDER BY id"
    poll(lambda: airflow.rows(asked, dag_id), timeout_s=240)
    return str(airflow.rows(asked, dag_id)[0][0])


@pytest.mark.parametrize("dag_id", SCHEDULED)
def test_its_schedule_runs_it(airflow: LiveAirflow, jobs: FakeJobs, dag_id: str, tmp_path: Path) -> None:
    airflow.client.unpause(dag_id)
    run = first_run(airflow, dag_id)

    assert airflow.wait_for_end(dag_id, run, nothing) == "success", airflow.client.why(dag_id, run)
    # The next test must not meet it: a run that has begun ends first, since a paused DAG begins no task.
    running = "SELECT run_id FROM dag_run WHERE dag_id = ? AND state NOT IN ('success', 'failed')"
    poll(lambda: not airflow.rows(running, dag_id), timeout_s=240)
    airflow.client.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": True})
    assert jobs["flights"].state == "running"


def test_the_stream_runs_it(airflow: LiveAirflow, jobs: FakeJobs) -> None:
    airflow.client.unpause("flights.hours")
    jobs["flights"].advance(NOON)
    run = first_run(airflow, "flights.hours")
    assert airflow.wait_for_end("flights.hours", run, nothing) == "success"
    assert airflow.client.result("flights.hours", run, "report")["end"].startswith("2026-11-30T12:00")


def test_a_person_runs_it(airflow: LiveAirflow, jobs: FakeJobs) -> None:
    airflow.client.unpause("upgrade_with_approval")
    run = airflow.client.trigger("upgrade_with_approval")

    def answer() -> None:
        airflow.approve("upgrade_with_approval", run)

    assert airflow.wait_for_end("upgrade_with_approval", run, answer) == "success"
    assert airflow.client.result("upgrade_with_approval", run, "upgrade")["state"] == "nothing-to-do"
