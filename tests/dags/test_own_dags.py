"""The examples of one's own DAGs run: real tasks of a real Airflow, on jobs that need no Spark."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import copytree
from typing import Any, ClassVar

import pendulum
import pytest
from airflow.timetables.base import TimeRestriction

from streambank.core.errors import RefusedError
from streambank.declaration.load import read_given
from streambank_airflow.testing import FakeJob, FakeJobs
from streambank_airflow.testing.fixtures import fake_jobs
from tests.support.airflow_face.exchanged_job import Rewriting
from tests.support.airflow_face.metadata_db import answer_question, run_dag, task_states, xcom
from tests.support.airflow_face.moved import DagBag, DagSerialization
from tests.support.airflow_face.releases import needs_3_2, needs_3_3
from tests.support.paths import ROOT
from tests.test_docs import README, blocks

__all__ = ["fake_jobs"]
FOLDER = ROOT / "examples" / "dags"
SCHEDULED = {
    "nightly_proof": "2026-12-01T00:00",
    "maintenance": "2026-12-06T03:00",
    "three_jobs": "2026-12-01T01:00",
    "disaster_exercise": "2027-01-01T09:00",
    "ttl_by_night": "2026-12-01T02:30",
    "own_channel": "2026-11-30T12:15",
    "jobs_from_table": "2026-11-30T13:00",
}
"""When each runs next, at noon of the last of November 2026."""


@pytest.fixture
def dags(airflow_database: None, fake_jobs: FakeJobs) -> dict[str, Any]:
    bag = DagBag(str(FOLDER))
    assert bag.import_errors == {}
    return dict(bag.dags)


@pytest.fixture
def flights(fake_jobs: FakeJobs) -> FakeJob:
    """The job of the examples, which runs."""
    job = fake_jobs.declare("flights")
    job.start()
    return job


def done(run: Any) -> set[str]:
    return set(task_states(run).values())


def test_all_are_read_and_each_has_a_doc(dags: dict[str, Any]) -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - {"batch_after_watermark"}
    assert set(dags) - {"flights.hours", "flights.days"} == files
    assert all(dag.doc_md and "example" in dag.tags for dag in dags.values())


@pytest.mark.parametrize("dag_id", SCHEDULED)
def test_the_next_run_is_when_the_doc_says_and_nothing_is_caught_up(
    dags: dict[str, Any], dag_id: str
) -> None:
    now = pendulum.datetime(2026, 11, 30, 12, 1)
    timetable: Any = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dags[dag_id])).timetable
    # A restriction that catches up asks nothing of the clock.
    restriction = TimeRestriction(earliest=dags[dag_id].start_date, latest=None, catchup=True)
    before = timetable.infer_manual_data_interval(run_after=now)
    coming = timetable.next_dagrun_info(last_automated_data_interval=before, restriction=restriction)
    assert coming.run_after.isoformat().startswith(SCHEDULED[dag_id])
    assert not dags[dag_id].catchup


def test_a_savepoint_is_proved_beside_the_job(dags: dict[str, Any], flights: FakeJob, tmp_path: Path) -> None:
    run_dag(dags["three_jobs"])
    run = run_dag(dags["nightly_proof"], run_conf={"directory": str(tmp_path / "proofs")})

    assert done(run) == {"success"}
    assert f"{tmp_path}/proofs/" in xcom(run, "restore", "location")
    assert not list((tmp_path / "proofs").iterdir())
    assert flights.state == "running"


@pytest.mark.parametrize("fails", [False, True])
def test_maintenance_stops_the_job_and_starts_it_whatever_came_of_the_work(
    dags: dict[str, Any], flights: FakeJob, fails: bool
) -> None:
    if fails:
        dags["maintenance"].get_task("work").bash_command = "false"

    run = run_dag(dags["maintenance"])

    outcome, ended = ("failed", "upstream_failed") if fails else ("success", "success")
    assert task_states(run) == {"stop": "success", "work": outcome, "start": "success", "ended": ended}
    assert run.state == outcome
    assert flights.state == "running" and len(flights.savepoints) == 1


def test_a_job_that_somebody_has_stopped_stays_stopped(dags: dict[str, Any], flights: FakeJob) -> None:
    flights.stop()
    run = run_dag(dags["maintenance"])
    assert done(run) == {"skipped"}
    assert flights.state == "stopped"


def test_three_jobs_are_saved_and_the_one_that_never_ran_is_skipped(
    dags: dict[str, Any], fake_jobs: FakeJobs, flights: FakeJob
) -> None:
    delays, sessions = fake_jobs.declare("delays"), fake_jobs.declare("sessions")
    delays.start()

    run = run_dag(dags["three_jobs"])

    assert [len(job.savepoints) for job in (flights, delays, sessions)] == [1, 1, 0]
    assert run.state == "success"


@needs_3_3
def test_an_upgrade_shows_its_plan_waits_for_a_person_and_takes_place(
    dags: dict[str, Any], fake_jobs: FakeJobs, flights: FakeJob
) -> None:
    upgrade: Any = dags["upgrade_with_approval"].get_task("upgrade")
    upgrade.watch_s = 0.1
    fake_jobs.declare("flights", spark={"spark.sql.shuffle.partitions": 4})

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer_question, "upgrade_with_approval", "approve", "Approve")
        run = run_dag(dags["upgrade_with_approval"])

    assert "spark.sql.shuffle.partitions" in answered.result().body
    assert done(run) == {"success"}
    assert xcom(run, "upgrade")["state"] == "upgraded"
    assert flights.state == "running"


@pytest.mark.parametrize("expired", [True, False])
def test_keys_that_have_expired_go_by_night(
    dags: dict[str, Any], flights: FakeJob, monkeypatch: pytest.MonkeyPatch, expired: bool
) -> None:
    spark = Rewriting(monkeypatch)
    spark.finds_nothing = not expired

    run = run_dag(dags["ttl_by_night"])

    assert run.state == "success"
    assert task_states(run)["restore"] == ("success" if expired else "skipped")
    generation = flights.records.generation()
    assert generation is not None and generation.number == (2 if expired else 1)
    assert flights.state == "running"


def test_a_job_whose_keys_could_not_be_dropped_goes_on_with_them(
    dags: dict[str, Any], flights: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rewriting(monkeypatch).fails = RefusedError("No column last_seen.", code="bad-expression", hint="")

    run = run_dag(dags["ttl_by_night"])

    assert run.state == "failed"
    assert task_states(run)["start"] == "success" and flights.state == "running"


def test_an_exercise_goes_to_the_other_site_and_comes_back(dags: dict[str, Any], fake_jobs: FakeJobs) -> None:
    flights = fake_jobs.declare(
        "flights",
        replicate={"to": ["west/savepoints"]},
        standby={
            "checkpoint": "west/checkpoints/flights",
            "repository": "west/savepoints",
            "control": "west/control",
        },
    )
    flights.start()
    dags["disaster_exercise"].get_task("proof").poke_interval = 0.2

    run = run_dag(dags["disaster_exercise"])

    assert done(run) == {"success"}
    assert (xcom(run, "there")["site"], xcom(run, "back")["site"]) == ("standby", "primary")
    assert "0 s of data lost" in xcom(run, "report") or "0.0 s of data lost" in xcom(run, "report")


def test_jobs_are_what_the_table_declares(
    dags: dict[str, Any], fake_jobs: FakeJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("eu", "orders.py", "orders-eu"), ("us", "orders.py", "orders-us")]
    with closing(sqlite3.connect(tmp_path / "table.db")) as table:
        table.execute("CREATE TABLE jobs (name, application, topic)")
        table.executemany("INSERT INTO jobs VALUES (?, ?, ?)", rows)
        table.commit()
    host = str(tmp_path / "table.db")
    monkeypatch.setenv("AIRFLOW_CONN_JOBS_TABLE", json.dumps({"conn_type": "generic", "host": host}))
    fakes = [fake_jobs.declare(name) for name, *_ in rows]

    run = run_dag(dags["jobs_from_table"])

    assert done(run) == {"success"}
    assert [(job.state, len(job.savepoints)) for job in fakes] == [("running", 1)] * 2
    given = xcom(run, "declared")
    real = read_given([one["declaration"] for one in given]).whole()
    assert real.jobs["us"].args == ("--topic", "orders-us")

    fakes[0].wait_for_batch(fakes[0].batch + 1)
    fakes[1].kill()
    fakes[1].cannot_start("There is no such application.")
    saved = run_dag(dags["jobs_from_table"])
    assert "upstream_failed" in done(saved)
    assert [len(job.savepoints) for job in fakes] == [2, 1]


class Chat(BaseHTTPRequestHandler):
    said: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def chat() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    server.server_close()


def test_a_channel_of_ones_own_hears_once_what_breaks_and_once_that_it_is_well(
    dags: dict[str, Any], fake_jobs: FakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights = fake_jobs.declare("flights", sla={"state_rows": {"breach": 100, "window": "1s"}})
    flights.has_state(500)
    flights.start()
    Chat.said.clear()
    with chat() as address:
        monkeypatch.setenv("AIRFLOW_CONN_CHAT", json.dumps({"conn_type": "http", "host": address}))
        for _ in range(2):
            assert done(run_dag(dags["own_channel"])) == {"success"}
        broke = list(Chat.said)
        flights.has_state(5)
        flights.wait_for_batch(flights.batch + 25)
        assert done(run_dag(dags["own_channel"])) == {"success"}
    assert len(broke) == 1 and "500" in broke[0], broke
    assert len(Chat.said) == 2


@needs_3_2
@pytest.mark.storm
def test_the_unit_test_of_a_dag_passes_as_people_run_it(tmp_path: Path) -> None:
    """In a project that has DAGs and tests, and nothing of this one but what is installed."""
    copytree(ROOT / "examples", tmp_path / "project")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "STREAMBANK"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path / "project",
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "4 passed" in done.stdout


def test_the_page_about_tests_shows_the_example_that_the_suite_runs() -> None:
    shown = blocks(ROOT / "docs" / "howto" / "test-dags.md", "python")
    names = ("conftest.py", "test_maintenance.py")
    assert shown == [(ROOT / "examples" / "tests" / name).read_text(encoding="utf-8") for name in names]


def test_the_first_dag_of_the_readme_runs(airflow_database: None, fake_jobs: FakeJobs) -> None:
    orders = fake_jobs.declare("orders")
    orders.start()
    names: dict[str, Any] = {}
    exec(blocks(README, "python")[0].replace("catchup=False):", "catchup=False) as dag:"), names)

    assert done(run_dag(names["dag"])) == {"success"}
    assert len(orders.savepoints) == 1


def test_the_page_about_airflow_names_each_example() -> None:
    said = (ROOT / "docs" / "howto" / "airflow.md").read_text(encoding="utf-8")
    assert not [path.name for path in FOLDER.glob("*.py") if f"examples/dags/{path.name})" not in said]
