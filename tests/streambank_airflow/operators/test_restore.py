"""A restore that takes a job to a new output, shown for approval first."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.job.savepoint import savepoint_job
from streambank.storage import open_store
from streambank_airflow.jobs import build_dags
from streambank_airflow.operators.restore import PLAN_KEY
from tests.support.airflow_db import run_dag, task_states, xcom
from tests.support.file_sinks import FileSinkWriter, snapshot_of
from tests.support.jobs import poll
from tests.support.managed import BY, Managed

pytestmark = pytest.mark.usefixtures("airflow_database")


@pytest.fixture
def out(managed: Managed) -> Path:
    """The output of the job, stopped and saved; it has one batch more than the savepoint."""
    managed.start()
    managed.wait_for_batch(2)
    poll(lambda: managed.control.query_facts() is not None)
    managed.stop()
    folder = managed.folder / "out"
    sink = FileSinkWriter(open_store(folder))
    for batch in range(managed.last_batch() + 1):
        sink.write(batch, [{"batch": batch}])
    facts = managed.control.query_facts() or {}
    managed.control.record_query(None, {**facts, "sink": f"FileSink[file:{folder}]"})
    savepoint_job(managed.job, by=BY)
    sink.write(managed.last_batch() + 1, [{"batch": "later"}])
    return folder


def test_a_person_approves_a_new_output_and_the_job_goes_on_there(managed: Managed, out: Path) -> None:
    new, before = managed.folder / "new", snapshot_of(open_store(out))

    run = run_dag(
        build_dags(managed.jobs_file)["flights.restore"],
        run_conf={"new_sinks": [f"{out}={new}"]},
        mark_success_pattern="check_run|approve|stop|start|first_batch|keep_running|watched",
    )

    states = task_states(run)
    assert (states["plan"], states["restore"]) == ("success", "success")
    shown = xcom(run, "plan", PLAN_KEY)
    assert f"| Writes to | `{new.as_uri()}` instead of `{out.as_uri()}` |" in shown
    assert "has to write to" in shown
    generation = managed.control.generation()
    assert generation is not None
    assert (generation.number, generation.new_sinks) == (2, {out.as_uri(): new.as_uri()})
    batch = xcom(run, "restore")["batch"]
    assert sorted(open_store(new).names("_spark_metadata")) == [str(number) for number in range(batch + 1)]
    assert snapshot_of(open_store(out)) == before
