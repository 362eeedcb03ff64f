"""The generated DAGs of a job whose repository or checkpoint is gone: red, where they were green."""

from __future__ import annotations

import shutil

import pytest
from airflow.sdk import DAG

from streambank.job.savepoint import savepoint_job
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.job import StartStreamingJobOperator
from tests.support.airflow_face.metadata_db import run_dag, task_states
from tests.support.jobs.managed_job import BY, Managed
from tests.support.waiting import poll

pytestmark = pytest.mark.usefixtures("airflow_database")


def dag_of(managed: Managed, kind: str) -> DAG:
    """A generated DAG without retries, so that a failure is not waited for."""
    return build_dags(managed.jobs_file, default_args={"retries": 0})[f"flights.{kind}"]


@pytest.fixture
def saved(managed: Managed) -> Managed:
    """The job, stopped, with a savepoint."""
    managed.start()
    managed.wait_for_batch(1)
    poll(lambda: managed.control.query_facts() is not None)
    managed.stop()
    savepoint_job(managed.job, by=BY)
    return managed


@pytest.fixture
def lost(saved: Managed) -> Managed:
    """The same, with an empty directory where its repository was, and nothing where its records were."""
    (saved.folder / "repository.control").rename(saved.folder / "control.gone")
    (saved.folder / "repository").rename(saved.folder / "repository.gone")
    (saved.folder / "repository").mkdir()
    return saved


def test_every_dag_of_a_job_whose_checkpoint_is_gone_names_the_same_way_out(
    saved: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(saved.job.checkpoint.removeprefix("file://"))

    failed = {
        ("savepoint", "take"): task_states(run_dag(dag_of(saved, "savepoint")))["take"],
        ("run", "start"): task_states(run_dag(dag_of(saved, "run")))["start"],
        **{("sla", task): state for task, state in task_states(run_dag(dag_of(saved, "sla"))).items()},
    }

    assert {one: state for one, state in failed.items() if state != "failed"} == {}
    out = capfd.readouterr().out
    assert out.count("checkpoint-lost") >= 4
    assert out.count("Restore a savepoint: trigger flights.restore.") >= 4
    assert "streambank restore" not in out


def test_every_dag_of_a_job_whose_repository_is_gone_is_red(
    lost: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    assert task_states(run_dag(dag_of(lost, "savepoint")))["take"] == "failed"
    sla = task_states(run_dag(dag_of(lost, "sla")))
    assert (sla["check"], sla["doctor"]) == ("failed", "failed")
    assert task_states(run_dag(dag_of(lost, "run")))["start"] == "failed"

    out = capfd.readouterr().out
    assert out.count("[repository-lost]") >= 3
    assert "was never started" not in out
    assert list((lost.folder / "repository").iterdir()) == [], "nothing was begun in its place"


@pytest.mark.storm
def test_a_person_lets_the_job_begin_again_by_the_form(lost: Managed) -> None:
    before = lost.last_batch()

    run = run_dag(
        dag_of(lost, "run"),
        run_conf={"fresh_start": True, "note": "the disk burnt"},
        mark_success_pattern="keep_running",
    )

    assert task_states(run)["start"] == "success"
    event = lost.control.last_event("fresh-start")
    assert event is not None
    assert (event["by"]["dag_id"], event["by"]["triggered_by"]) == ("flights.run", "dag_test")
    assert event["why"] == "the disk burnt"
    assert lost.last_batch() > before, "it went on in the checkpoint that counted"


def test_a_schedule_accepts_nothing(
    lost: Managed, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank_airflow.operators.job.by_schedule", lambda context: True)
    with DAG("one_task", schedule=None) as dag:
        StartStreamingJobOperator(
            task_id="task", job="flights", jobs_file=str(lost.jobs_file), fresh_start=True
        )

    assert task_states(run_dag(dag)) == {"task": "failed"}
    assert "[fresh-start-by-schedule]" in capfd.readouterr().out
    assert list((lost.folder / "repository").iterdir()) == []
