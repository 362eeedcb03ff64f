"""Savepoints and restores as task groups in DAGs of one's own."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from streambank.core.errors import InputError
from streambank_airflow.dags.groups import restore_group, savepoint_group
from streambank_airflow.dags.jobs import build_dags
from tests.support.airflow_face.metadata_db import answer_question, run_dag, task_states, write_dags, xcom
from tests.support.airflow_face.moved import DagSerialization
from tests.support.jobs.managed_job import Managed, hand_over
from tests.support.waiting import poll

pytestmark = pytest.mark.storm


@contextmanager
def own_dag(name: str = "own", **more: Any) -> Iterator[DAG]:
    """A DAG as users write them: its templates render to text."""
    with DAG(name, schedule=None, **more) as dag:
        yield dag


def test_a_savepoint_before_a_batch_job(airflow_database: None, managed: Managed) -> None:
    managed.start()
    with own_dag() as dag:
        saved = savepoint_group(
            "flights", jobs_file=managed.jobs_file, verify="full", pin=True, note="before the report"
        )
        take: Any = saved.get_child_by_label("take")
        saved >> BashOperator(
            task_id="report", bash_command="echo saved=$SAVED", env={"SAVED": take.output["savepoint"]}
        )
    DagSerialization.from_dict(DagSerialization.to_dict(dag))

    run = run_dag(dag)

    assert task_states(run) == {
        "savepoint.take": "success",
        "savepoint.verify": "success",
        "report": "success",
    }
    (summary,) = managed.repository.manifests("flights")
    assert (summary.note, summary.pinned, summary.verified_ok) == ("before the report", True, True)
    assert xcom(run, "savepoint.take", "savepoint") == summary.savepoint
    assert xcom(run, "report") == f"saved={summary.savepoint}"


def lost(managed: Managed) -> str:
    managed.start(until=3)
    poll(lambda: managed.control.query_facts() is not None)
    with own_dag("before") as dag:
        savepoint_group("flights", jobs_file=managed.jobs_file)
    taken: str = xcom(run_dag(dag), "savepoint.take", "savepoint")
    managed.kill()
    shutil.rmtree(managed.checkpoint)
    return taken


def test_a_restore_that_a_person_approves(
    airflow_database: None, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(lambda: managed.control, monkeypatch)
    taken = lost(managed)
    write_dags(build_dags(managed.jobs_file)["flights.run"])
    with own_dag() as dag:
        restore_group("flights", jobs_file=managed.jobs_file, group_id="back")
    question = threading.Thread(target=lambda: answer_question("own", "back.approve", "Approve"))
    question.start()

    run = run_dag(dag)
    question.join()

    assert set(task_states(run).values()) == {"success"}
    assert len(task_states(run)) == 8
    done = xcom(run, "back.restore")
    assert (done["savepoint"], done["generation"]) == (taken, 2)
    assert managed.driver_lives()


@pytest.mark.storm
def test_what_a_person_chose_counts_though_templates_render_to_text(
    airflow_database: None, managed: Managed
) -> None:
    managed.start()
    with own_dag("before") as dag:
        savepoint_group("flights", jobs_file=managed.jobs_file)
    run_dag(dag)
    with own_dag() as dag:
        restore_group("flights", jobs_file=managed.jobs_file, start=False)
    chosen: list[str] = []

    def choose() -> None:
        shown = answer_question("own", "restore.approve", "Stop the job and restore")
        chosen.extend(shown.options)

    question = threading.Thread(target=choose)
    question.start()

    run = run_dag(dag)
    question.join()

    states = task_states(run)
    assert (states["restore.stop"], states["restore.restore"]) == ("success", "success"), chosen
    assert states["restore.start"] == "skipped"
    assert not managed.driver_lives()


def test_without_approval_nothing_is_decided_for_a_person(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    with own_dag("before") as dag:
        savepoint_group("flights", jobs_file=managed.jobs_file)
    run_dag(dag)
    with own_dag(default_args={"retries": 0}) as dag:
        restore_group("flights", jobs_file=managed.jobs_file, approve=False, start=False)

    run = run_dag(dag)

    states = task_states(run)
    assert states["restore.plan"] == "failed"
    assert "restore.approve" not in states
    assert managed.driver_lives()

    managed.stop()
    run = run_dag(dag)
    assert task_states(run)["restore.restore"] == "success"


def test_a_group_without_what_is_declared_to_follow(managed: Managed) -> None:
    file = managed.jobs_file
    text = file.read_text(encoding="utf-8")
    file.write_text(
        text
        + '[jobs.flights.retention]\nkeep_last = 3\n[jobs.flights.replicate]\nto = ["replica"]\n'
        + '[jobs.flights.airflow]\nqueue = "big"\nowner = "payments"\n',
        encoding="utf-8",
    )

    def tasks(**how: Any) -> list[str]:
        with own_dag(default_args={"owner": "mine"}) as dag:
            savepoint_group("flights", jobs_file=file, group_id="s", **how)
        for task in dag.tasks:
            assert (task.owner, task.queue, task.retries) == ("mine", "big", 3)
        return [task.task_id for task in dag.tasks]

    assert tasks() == ["s.take", "s.verify", "s.replicate", "s.expire"]
    assert tasks(leave_out=["expire"]) == ["s.take", "s.verify", "s.replicate"]
    assert tasks(leave_out=["replicate"]) == ["s.take", "s.verify"], "what the replica lacks must stay"
    with pytest.raises(InputError, match="leave_out must be one of"):
        tasks(leave_out=["verify"])


def test_a_group_finds_its_jobs_file_where_airflow_reads_dags(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMBANK_JOBS", raising=False)
    with own_dag(), pytest.raises(InputError, match="No jobs file is named"):
        savepoint_group("flights")
    monkeypatch.setenv("STREAMBANK_JOBS", str(managed.jobs_file))
    with own_dag():
        assert savepoint_group("flights").group_id == "savepoint"
        with pytest.raises(InputError, match="names a query"):
            savepoint_group("flights/main", group_id="other")
