"""The DAGs of a declared job, run with Airflow's own database and a driver without Spark."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG

from streambank.core.errors import InputError
from streambank_airflow.dags.groups import restore_group
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.approve import PLAN_KEY
from streambank_airflow.operators.job import StopStreamingJobOperator
from tests.support.airflow_face.metadata_db import (
    answer_question,
    asset_events,
    run_dag,
    task_states,
    write_dags,
    xcom,
)
from tests.support.airflow_face.moved import DagSerialization
from tests.support.jobs.managed_job import Managed, hand_over
from tests.support.waiting import poll


def dags_of(managed: Managed) -> dict[str, DAG]:
    return build_dags(managed.jobs_file)


def test_each_job_gets_its_dags_that_airflow_can_serialize(managed: Managed) -> None:
    dags = dags_of(managed)

    assert list(dags) == [
        "flights.run",
        "flights.stop",
        "flights.savepoint",
        "flights.restore",
        "flights.drill",
        "flights.upgrade",
        "flights.sla",
        "flights.compact",
        "flights.rescale",
    ]
    for dag in dags.values():
        once = DagSerialization.to_dict(dag)
        again = DagSerialization.from_dict(once)
        assert again.dag_id == dag.dag_id
        assert {task.task_id for task in again.tasks} == {task.task_id for task in dag.tasks}
        assert "Departures." in str(dag.doc_md)
        if dag.dag_id != "flights.rescale":  # whose form has one field that nothing answers for a person
            dag.params.validate()


def test_every_operator_that_has_a_link_keeps_it_when_serialized(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that has scheduled a DAG reads no links any more; the web server, which shows them, does.
    monkeypatch.setattr(DagSerialization, "_load_operator_extra_links", True)
    dag = DagSerialization.from_dict(DagSerialization.to_dict(dags_of(managed)["flights.run"]))

    for task in dag.tasks:
        assert [link.name for link in task.operator_extra_links] == ["Driver log"]


def test_templates_are_filled_in_from_the_form(managed: Managed) -> None:
    stop = dags_of(managed)["flights.stop"].get_task("stop")
    assert isinstance(stop, StopStreamingJobOperator)
    answers = {"savepoint": False, "drain": True, "force_after": "7.5s", "note": None}

    stop.render_template_fields({"params": answers}, stop.get_template_env())

    stop.read_arguments()
    assert [stop.savepoint, stop.drain, stop.force_after_s, stop.note] == [False, True, 7.5, None]


def test_a_savepoint_of_a_job_that_was_never_started_is_skipped(
    airflow_database: None, managed: Managed
) -> None:
    run = run_dag(dags_of(managed)["flights.savepoint"])

    assert task_states(run) == {"take": "skipped", "verify": "skipped"}


def test_savepoints_are_taken_verified_and_told_of_as_asset_events(
    airflow_database: None, managed: Managed
) -> None:
    managed.start()
    before = len(asset_events())

    run = run_dag(
        dags_of(managed)["flights.savepoint"], run_conf={"note": "by hand", "verify": "full", "pin": True}
    )

    took, verified = xcom(run, "take"), xcom(run, "verify")
    assert (verified["ok"], verified["level"], verified["findings"]) == (True, "full", 0)
    assert verified["savepoint"] == took["savepoint"]
    (summary,) = managed.repository.manifests("flights")
    assert (summary.note, summary.pinned, summary.verified_ok) == ("by hand", True, True)
    (event,) = asset_events()[before:]
    assert {key: event[key] for key in ("savepoint", "batch", "bytes")} == {
        key: took[key] for key in ("savepoint", "batch", "bytes")
    }
    assert str(managed.folder) not in str(event)


def test_a_damaged_savepoint_fails_its_verification(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    managed.stop()
    run = run_dag(dags_of(managed)["flights.savepoint"], run_conf={"verify": "none"})
    assert task_states(run) == {"take": "success", "verify": "skipped"}
    for pack in (managed.folder / "repository/packs").rglob("*"):
        if pack.is_file():
            data = pack.read_bytes()
            pack.write_bytes(bytes([data[0] ^ 1]) + data[1:])

    dags = build_dags(managed.jobs_file, default_args={"retries": 0})
    run = run_dag(dags["flights.savepoint"], run_conf={"verify": "full"})

    assert task_states(run)["verify"] == "failed"
    assert "Hint:" in capfd.readouterr().out


def saved_then_lost(managed: Managed) -> Any:
    """A job with a savepoint, whose checkpoint is gone and whose driver was killed."""
    managed.start(until=3)
    poll(lambda: managed.control.query_facts() is not None)
    took = xcom(run_dag(dags_of(managed)["flights.savepoint"]), "take")
    managed.wait_for_batch(took["batch"] + 3)
    managed.kill()
    shutil.rmtree(managed.checkpoint)
    return took


def test_a_disaster_is_restored_once_a_person_approves(
    airflow_database: None, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_over = hand_over(lambda: managed.control, monkeypatch)
    took = saved_then_lost(managed)
    dags = dags_of(managed)
    write_dags(dags["flights.run"])
    question = threading.Thread(target=lambda: answer_question("flights.restore", "approve", "Approve"))
    question.start()

    run = run_dag(dags["flights.restore"], run_conf={"note": "checkpoint lost"})
    question.join()

    states = task_states(run)
    assert states.pop("restore_into") == "skipped"
    assert set(states.values()) == {"success"}
    assert xcom(run, "watched")["watcher"] == f"run {taken_over[0]} of flights.run"
    plan, shown = xcom(run, "plan"), xcom(run, "plan", PLAN_KEY)
    assert plan["savepoint"] == took["savepoint"]
    assert plan.pop("skipped") == []
    assert not [value for value in plan.values() if isinstance(value, dict | list)]
    for fact in (
        took["savepoint"],
        "| Batch |",
        "ago |",
        "| State rows |",
        "bytes",
        "| Output written later |",
    ):
        assert fact in shown or fact == "bytes"
    done = xcom(run, "restore")
    assert (done["savepoint"], done["batch"], done["generation"]) == (took["savepoint"], took["batch"], 2)
    assert done["sink_effect"]
    assert xcom(run, "start")["batch"] > took["batch"]
    assert managed.driver_lives()
    assert managed.desired.state == "running"
    generation = managed.generation
    assert (generation.number, generation.from_savepoint) == (2, took["savepoint"])


@pytest.mark.storm
def test_a_person_who_rejects_changes_nothing(airflow_database: None, managed: Managed) -> None:
    saved_then_lost(managed)
    question = threading.Thread(target=lambda: answer_question("flights.restore", "approve", "Reject"))
    question.start()

    run = run_dag(dags_of(managed)["flights.restore"])
    question.join()

    states = task_states(run)
    assert {states.pop(task) for task in ("check_run", "plan", "approve")} == {"success"}
    assert set(states.values()) == {"skipped"}
    assert managed.generation.number == 1
    assert not managed.driver_lives()


def test_silence_rejects(managed: Managed) -> None:
    approve = dags_of(managed)["flights.restore"].get_task("approve")

    assert isinstance(approve, ApprovalOperator)
    assert approve.response_timeout is not None
    assert approve.defaults == ["Reject"]
    assert approve.response_timeout.total_seconds() == 3600


def test_a_job_that_lives_is_not_touched_unless_the_form_or_a_person_says_so(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    run_dag(dags_of(managed)["flights.savepoint"])

    # Nobody chose anything: the task was marked as a success by hand.
    run = run_dag(dags_of(managed)["flights.restore"], mark_success_pattern="approve")

    states = task_states(run)
    assert (states["plan"], states["stop"], states["restore"]) == ("success", "failed", "upstream_failed")
    assert "Set stop_running" in capfd.readouterr().out
    assert managed.driver_lives()


@pytest.mark.storm
def test_a_job_that_lives_is_stopped_first_where_the_form_says_so(
    airflow_database: None, managed: Managed
) -> None:
    managed.start()
    took = xcom(run_dag(dags_of(managed)["flights.savepoint"]), "take")
    dags = dags_of(managed)
    write_dags(dags["flights.run"])

    run = run_dag(
        dags["flights.restore"],
        run_conf={"stop_running": True, "start": False},
        mark_success_pattern="approve",
    )

    states = task_states(run)
    assert (states["stop"], states["restore"]) == ("success", "success")
    assert {states[task] for task in ("start", "keep_running")} == {"skipped"}
    assert "It will be stopped first." in xcom(run, "plan", PLAN_KEY)
    assert xcom(run, "restore")["batch"] == took["batch"]
    assert not managed.driver_lives()


@pytest.mark.storm
def test_a_savepoint_that_does_not_exist_is_a_clear_answer(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    managed.stop()
    run_dag(dags_of(managed)["flights.savepoint"])

    run = run_dag(dags_of(managed)["flights.restore"], run_conf={"savepoint": "b999999"})

    assert task_states(run)["plan"] == "failed"
    assert "Hint:" in capfd.readouterr().out


def test_the_run_dag_starts_watches_and_ends_when_the_job_is_stopped(
    airflow_database: None, managed: Managed
) -> None:
    def stop_soon() -> None:
        poll(lambda: managed.last_batch() >= 2, timeout_s=60)
        managed.stop("enough")

    stopper = threading.Thread(target=stop_soon)
    stopper.start()
    run = run_dag(dags_of(managed)["flights.run"])
    stopper.join()

    assert task_states(run) == {"start": "success", "keep_running": "success"}
    assert xcom(run, "keep_running")["state"] == "stopped"


def test_a_mistake_in_one_job_takes_no_dag_of_another_one_away_and_is_shown(managed: Managed) -> None:
    before = dags_of(managed)
    right = managed.jobs_file.read_text(encoding="utf-8")
    managed.declare('\n[jobs.trains]\napplication = "a.py"\ncheckpiont = "c/trains"\n')

    dags = dags_of(managed)
    with DAG("own", schedule=None) as own:
        restore_group("flights", jobs_file=managed.jobs_file)

    assert "restore.restore" in own.task_ids
    assert {*before} < {*dags} and {*dags} - {*before} == {"trains.run", "trains.sla"}
    managed.jobs_file.write_text(right, encoding="utf-8")
    for dag_id in ("trains.run", "trains.sla"):
        shown = str(dags[dag_id].description)
        assert shown.startswith("The declaration of this job has a mistake. ")
        assert "jobs.trains.checkpiont: there is no such field. Did you mean checkpoint?" in shown
        DagSerialization.to_dict(dags[dag_id])
    tasks = {task.task_id for task in before["flights.run"].tasks}
    assert {task.task_id for task in dags["trains.run"].tasks} == tasks, "a run that watches goes on later"
    assert not str(dags["flights.run"].description).startswith("The declaration of")


def test_where_no_job_is_right_the_mistake_is_the_import_error(managed: Managed) -> None:
    text = managed.jobs_file.read_text(encoding="utf-8")
    managed.jobs_file.write_text(text.replace("checkpoint =", "checkpiont ="), encoding="utf-8")
    with pytest.raises(InputError, match="Did you mean checkpoint"):
        dags_of(managed)
    managed.jobs_file.write_text(text, encoding="utf-8")
