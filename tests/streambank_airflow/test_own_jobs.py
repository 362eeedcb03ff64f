"""docs/howto/own-jobs.md: each DAG of the page does what the page says."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.core.names import MAIN
from streambank.declaration.load import read_given
from streambank.driver.spec import read_launch
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.managed_job import Managed
from tests.support.paths import ROOT
from tests.support.waiting import poll
from tests.test_docs import blocks

pytestmark = pytest.mark.usefixtures("airflow_database")
PAGE = ROOT / "docs/howto/own-jobs.md"
ONE, LOOP, ENVIRONMENTS, DATABASE, ARGUMENTS = range(5)
PERIOD = {
    "--interval": "--period-s",
    "--region": "--period-s",
    "--since": "--period-s",
    "--stage": "--period-s",
    "--brokers": "--boot-s",
}
"""What the stand-in for a driver understands instead of the page's arguments."""


@pytest.fixture
def streams(managed: Managed) -> Iterator[Path]:
    """The folder of the page; what was started there is ended afterwards."""
    folder = managed.folder / "streams"
    folder.mkdir()
    (folder / "orders.py").write_text("", encoding="utf-8")
    yield folder
    for records in (folder / "savepoints.control").glob("*"):
        job = {"name": records.name, "application": "/x.py", "checkpoint": str(folder / "x")}
        end_drivers(
            read_given([{**job, "repository": str(folder / "savepoints")}]).job(records.name).records()
        )


def dag_file(number: int, streams: Path) -> dict[str, Any]:
    """The names that a block of the page defines."""
    text = blocks(PAGE, "python")[number].replace("/srv/streams", str(streams))
    for theirs, ours in PERIOD.items():
        text = text.replace(f'"{theirs}"', f'"{ours}"')
    space: dict[str, Any] = {"__name__": "page"}
    exec(compile(text, str(streams / "dag.py"), "exec"), space)
    return space


def only(space: dict[str, Any]) -> DAG:
    (found,) = (one for one in space.values() if isinstance(one, DAG))
    return found


def records_of(space: dict[str, Any]) -> Any:
    return read_given([space["orders"].to_dict()]).job("orders").records()


def test_a_job_in_a_dag_starts_commits_and_stops(streams: Path) -> None:
    space = dag_file(ONE, streams)
    dag = only(space)
    first: Any = dag.get_task("first_batch")
    first.poke_interval = 0.2

    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    desired = records_of(space).desired()
    assert desired is not None and desired.state == "stopped"


def test_a_loop_makes_the_dags_of_each(streams: Path) -> None:
    dags = {name for name, one in dag_file(LOOP, streams).items() if isinstance(one, DAG)}

    assert dags == {
        f"orders-{r}.{v}" for r in ("eu", "us", "ap") for v in ("run", "stop", "savepoint", "restore")
    }


def test_an_environment_is_its_connection_and_its_variables(
    streams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"conn_type": "streambank", "extra": {"repository": str(streams / "savepoints")}}
    monkeypatch.setenv("AIRFLOW_CONN_STREAMBANK_DEFAULT", json.dumps(place))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", json.dumps({"conn_type": "kafka", "host": "k", "port": 9092}))
    monkeypatch.setenv("AIRFLOW_VAR_STAGE", "0.1")
    monkeypatch.setenv("AIRFLOW_VAR_LAKE", str(streams))
    space = dag_file(ENVIRONMENTS, streams)
    start: Any = only(space).get_task("start")

    job = start.hook.declared.job("orders")

    assert job.args == ("--period-s", "0.1", "--boot-s", "k:9092")
    assert (job.repository, job.checkpoint) == (
        f"file://{streams}/savepoints", f"file://{streams}/checkpoints/orders",
    )  # fmt: skip
    assert job.master == "local[2]" and job.queries == {MAIN: job.checkpoint}


def test_jobs_of_a_database_are_started_each_by_a_mapped_task(streams: Path) -> None:
    with sqlite3.connect(streams / "jobs.db") as jobs:
        jobs.execute("CREATE TABLE jobs (name TEXT, folder TEXT)")
        rows = [(name, str(streams / name)) for name in ("orders", "refunds")]
        jobs.executemany("INSERT INTO jobs VALUES (?, ?)", rows)

    run = run_dag(only(dag_file(DATABASE, streams)))

    assert set(task_states(run).values()) == {"success"}
    for name in ("orders", "refunds"):
        assert (streams / name / "checkpoint" / "commits" / "0").exists(), name


def test_a_start_and_who_keeps_the_job_running_have_the_arguments_of_the_run(streams: Path) -> None:
    space = dag_file(ARGUMENTS, streams)
    dag = only(space)
    keep: Any = dag.get_task("keep")
    keep.poll_interval_s = 0.1
    records = records_of(space)

    def stop_when_watched() -> None:
        try:
            poll(lambda: records.watches.view() is not None, timeout_s=40)
        finally:
            records.set_desired("stopped", by={"user": "me"})
            end_drivers(records)

    stopper = Thread(target=stop_when_watched)
    stopper.start()
    run = run_dag(dag, run_conf={"since": "0.2"})
    stopper.join()

    assert task_states(run) == {"start": "success", "keep": "success"}
    view = records.lease.view()
    assert view is not None and read_launch(records, str(view.launch_id)).args == ("--period-s", "0.2")
    assert keep.application_args == ["--period-s", "{{ params.since }}"]
