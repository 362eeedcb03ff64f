"""The DAGs of a job that declares two queries, run with Airflow's own database and a driver without Spark."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.approve import CHOICES_KEY, PLAN_KEY
from streambank_airflow.operators.restore import RestoreSavepointOperator
from tests.support.airflow_face.metadata_db import (
    answer_question,
    asset_events,
    run_dag,
    task_states,
    write_dags,
    xcom,
)
from tests.support.airflow_face.moved import DagSerialization
from tests.support.jobs.managed_job import Managed, hand_over, managed_job
from tests.support.waiting import poll

QUERIES = ("hourly", "sessions")


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    """A declared job with two queries that runs without Spark."""
    with managed_job(tmp_path, monkeypatch, QUERIES) as job:
        hand_over(lambda: job.control, monkeypatch)
        yield job


def restore(managed: Managed, **answers: Any) -> Any:
    """Run a restore, of a DAG that nothing was filled in to yet, whose question somebody approves."""
    question = threading.Thread(target=lambda: answer_question("flights.restore", "approve", "Approve"))
    question.start()
    run = run_dag(build_dags(managed.jobs_file)["flights.restore"], run_conf=answers)
    question.join()
    return run


def generations(managed: Managed) -> dict[str, tuple[int, str | None]]:
    found = {query: managed.control.generation(query) for query in QUERIES}
    return {query: (one.number, one.from_savepoint) for query, one in found.items() if one is not None}


def test_their_pages_say_what_several_queries_mean(managed: Managed) -> None:
    dags = build_dags(managed.jobs_file)

    assert "each query of the running job (hourly, sessions)" in str(dags["flights.savepoint"].doc_md)
    assert "not mutually consistent" in str(dags["flights.savepoint"].doc_md)
    assert "Restores all queries as one" in str(dags["flights.restore"].doc_md)
    for dag in dags.values():
        assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).dag_id == dag.dag_id
        if dag.dag_id != "flights.rescale":  # whose form has one field that nothing answers for a person
            dag.params.validate()


@pytest.mark.storm
def test_one_savepoint_of_each_is_taken_and_said_to_be_of_no_common_moment(
    airflow_database: None, managed: Managed
) -> None:
    managed.start()
    before = len(asset_events())

    run = run_dag(build_dags(managed.jobs_file)["flights.savepoint"], run_conf={"note": "by hand"})

    assert set(task_states(run)) == {f"{verb}_{query}" for verb in ("take", "verify") for query in QUERIES}
    assert set(task_states(run).values()) == {"success"}
    for query in QUERIES:
        took, verified = xcom(run, f"take_{query}"), xcom(run, f"verify_{query}")
        assert (took["job"], took["mutually_consistent"]) == (f"flights/{query}", False)
        (summary,) = managed.repository.manifests(f"flights/{query}")
        assert {summary.savepoint} == {took["savepoint"], verified["savepoint"]}
        assert (summary.batch, summary.note, verified["ok"]) == (took["batch"], "by hand", True)
    assert {event["job"] for event in asset_events()[before:]} == {"flights/hourly", "flights/sessions"}


def test_an_older_batch_is_named_for_each_query_apart(airflow_database: None, managed: Managed) -> None:
    managed.start()
    managed.wait_for_batch(5, "sessions")
    managed.stop()

    run = run_dag(build_dags(managed.jobs_file)["flights.savepoint"], run_conf={"batch_hourly": 3})

    assert xcom(run, "take_hourly")["batch"] == 3
    assert xcom(run, "take_sessions")["batch"] == managed.last_batch("sessions")


@pytest.mark.storm
def test_both_are_restored_one_after_the_other_and_each_plan_says_what_stays(
    airflow_database: None, managed: Managed
) -> None:
    managed.start()
    for query in QUERIES:
        managed.wait_for_batch(3, query)
        poll(partial(managed.control.query_facts, query))
    dags = build_dags(managed.jobs_file)
    saved = run_dag(dags["flights.savepoint"])
    took = {query: xcom(saved, f"take_{query}") for query in QUERIES}
    managed.kill()
    shutil.rmtree(managed.checkpoint_of("hourly").parent)
    write_dags(dags["flights.run"])

    first = restore(managed, query="hourly", start=False)

    assert {task_states(first)[task] for task in ("plan", "approve", "stop", "restore")} == {"success"}
    assert {task_states(first)[task] for task in ("start", "keep_running")} == {"skipped"}
    shown = xcom(first, "plan", PLAN_KEY)
    assert "Only query hourly of job flights goes back" in shown
    assert "not mutually consistent" in shown
    assert took["hourly"]["savepoint"] in shown
    assert generations(managed) == {"hourly": (2, took["hourly"]["savepoint"]), "sessions": (1, None)}

    second = restore(managed, query="sessions")

    states = task_states(second)
    assert states.pop("restore_into") == "skipped"
    assert set(states.values()) == {"success"}
    assert "Only query sessions of job flights goes back" in xcom(second, "plan", PLAN_KEY)
    assert generations(managed) == {query: (2, took[query]["savepoint"]) for query in QUERIES}
    for query in QUERIES:
        managed.wait_for_batch(took[query]["batch"] + 1, query)
    assert managed.driver_lives()


@pytest.mark.storm
def test_a_start_while_another_query_is_still_lost_is_refused(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.start()
    for query in QUERIES:
        managed.wait_for_batch(1, query)
    poll(lambda: managed.control.query_facts("sessions") is not None)
    run_dag(build_dags(managed.jobs_file)["flights.savepoint"])
    managed.kill()
    shutil.rmtree(managed.checkpoint_of("hourly").parent)

    run = restore(managed, query="hourly")

    assert (task_states(run)["restore"], task_states(run)["start"]) == ("success", "failed")
    out = capfd.readouterr().out
    assert "checkpoint-lost" in out
    assert "sessions" in out
    assert not managed.driver_lives()


@pytest.mark.storm
def test_all_are_restored_as_one_with_one_approval(airflow_database: None, managed: Managed) -> None:
    took = saved_and_killed(managed)
    unreadable = managed.folder / "repository/savepoints/flights/hourly/b999999-0123456789ab.json"
    unreadable.write_text("{")

    run = restore(managed)

    states = task_states(run)
    assert states.pop("restore_into") == "skipped"
    assert set(states.values()) == {"success"}
    shown = xcom(run, "plan", PLAN_KEY)
    assert "All queries, as one" in shown and "goes back to this savepoint" not in shown
    assert all(f"**Query `{query}`**" in shown and took[query] in shown for query in QUERIES)
    assert xcom(run, "plan")["savepoint"] == xcom(run, "restore")["savepoint"] == took
    skipped = xcom(run, "restore")["skipped"]
    assert skipped == xcom(run, "plan")["skipped"] and skipped["sessions"] == []
    assert [one["savepoint"] for one in skipped["hourly"]] == [unreadable.stem]
    assert xcom(run, "restore")["queries"]["hourly"]["skipped"] == skipped["hourly"]
    (choice,) = xcom(run, "plan", CHOICES_KEY)
    assert choice["savepoints"] == took and set(choice["newest_by_query"]) == set(QUERIES)
    assert generations(managed) == {query: (2, took[query]) for query in QUERIES}
    assert managed.driver_lives()


@pytest.mark.storm
def test_an_approval_of_all_is_of_the_set_that_was_shown(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    took = saved_and_killed(managed)
    shown = run_dag(plan_of_all(managed, savepoint="latest"))
    (choice,) = xcom(shown, "restore", CHOICES_KEY)
    other = {**choice, "savepoints": {**choice["savepoints"], "hourly": "b000000-0123456789ab"}}

    refused = run_dag(plan_of_all(managed, savepoint=took, plan_only=False, approved=other))

    assert task_states(refused)["restore"] == "failed"
    assert "The savepoints are not those that the plan has shown." in capfd.readouterr().out
    assert generations(managed) == {query: (1, None) for query in QUERIES}

    behind = {**choice, "newest_by_query": dict.fromkeys(QUERIES, -1)}
    refused = run_dag(plan_of_all(managed, savepoint=took, plan_only=False, approved=behind))

    assert task_states(refused)["restore"] == "failed"
    assert "has gone on to batch" in capfd.readouterr().out
    assert generations(managed) == {query: (1, None) for query in QUERIES}


@pytest.mark.parametrize("option", [{"into": "/elsewhere"}, {"mode": "fork"}, {"new_sinks": ["/a=/b"]}])
def test_all_are_restored_in_place_or_not_at_all(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str], option: dict[str, Any]
) -> None:
    run = run_dag(plan_of_all(managed, **option))
    assert task_states(run)["restore"] == "failed"
    assert "and into nothing else" in capfd.readouterr().out


def saved_and_killed(managed: Managed) -> dict[str, str]:
    """The savepoint of each query of a job that died and lost its checkpoints."""
    managed.start()
    for query in QUERIES:
        managed.wait_for_batch(3, query)
        poll(partial(managed.control.query_facts, query))
    dags = build_dags(managed.jobs_file)
    saved = run_dag(dags["flights.savepoint"])
    managed.kill()
    shutil.rmtree(managed.checkpoint_of("hourly").parent)
    write_dags(dags["flights.run"])
    return {query: xcom(saved, f"take_{query}")["savepoint"] for query in QUERIES}


def plan_of_all(managed: Managed, **options: Any) -> DAG:
    """A DAG that plans a restore of all queries, or does it."""
    with DAG("all_of_flights") as dag:
        RestoreSavepointOperator(
            task_id="restore",
            job="flights/*",
            jobs_file=str(managed.jobs_file),
            **{"plan_only": True, "offer": True, **options},
        )
    return dag
