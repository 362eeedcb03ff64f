"""`<job>.compact` and `.rescale` on a job that runs: another state, and it goes on; or it stays as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from streambank.control.watch import Watches
from streambank.job.alive import DAGS
from streambank.recovery import foresee
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.operators.hand_over import CheckRunDagOperator
from tests.streambank_airflow.dags.test_failover import STANDBY_TABLE
from tests.support.airflow_face.exchanged_job import (
    CHANGES,
    OLD,
    WAY_BACK,
    WHERE,
    Rewriting,
    dag,
    exchange,
    generation,
)
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.airflow_face.moved import DagSerialization
from tests.support.jobs.managed_job import Managed


@pytest.mark.storm
def test_expired_keys_go_and_the_job_goes_on(
    airflow_database: None, managed: Managed, rewriting: Rewriting
) -> None:
    managed.start()
    managed.wait_for_batch(2)

    run = exchange(managed, {**OLD, "note": "too many"})

    states = task_states(run)
    assert {states.pop(task) for task in WAY_BACK} == {"skipped"}
    assert set(states.values()) == {"success"}
    done = xcom(run, "rewrite")
    assert (done["operation"], done["generation"], done["keys"], done["rows_before"]) == ("compact", 1, 2, 9)
    assert done["savepoint"] == xcom(run, "restore")["savepoint"] != xcom(run, "stop")["savepoint"]
    assert generation(managed) == (2, None)
    managed.wait_for_batch(done["batch"] + 1)
    ((plan, spark),) = rewriting.asked
    assert plan["order"]["where"] == WHERE and plan["order"]["note"] == "too many"
    assert plan["work"] == f"{managed.job.checkpoint}.work" and spark.master == managed.job.master
    assert plan["by"]["task_id"] == "rewrite"


@pytest.mark.storm
def test_partitions_are_what_the_form_says(
    airflow_database: None, managed: Managed, rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.start()
    monkeypatch.setattr(foresee, "_check_rescale", lambda *_: None)  # its state is not RocksDB
    run = exchange(managed, {"partitions": 7}, dag(managed, "rescale"))
    assert task_states(run)["keep_running"] == "success"
    assert rewriting.asked[0][0]["order"]["partitions"] == 7
    assert generation(managed) == (2, None)


@pytest.mark.storm
def test_where_nothing_goes_the_job_goes_on(
    airflow_database: None, managed: Managed, rewriting: Rewriting
) -> None:
    managed.start()
    rewriting.finds_nothing = True
    run = exchange(managed, OLD)
    states = task_states(run)
    assert (states["restore"], states["start"], states["keep_running"]) == ("skipped", "success", "success")
    assert generation(managed) == (1, None)
    assert managed.driver_lives()


@pytest.mark.parametrize("start", [pytest.param(True, marks=pytest.mark.storm), False])
def test_a_job_is_not_touched_where_it_could_not_be_handed_over(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    capfd: pytest.CaptureFixture[str],
    start: bool,
) -> None:
    """A run of a paused DAG waits in the queue for ever, while the task that triggered it is green."""
    managed.start()
    run = exchange(managed, {**OLD, "start": start}, dag(managed, paused=True))

    states, out = task_states(run), capfd.readouterr().out
    if start:
        assert (states["check_run"], states["stop"], states["go_back"]) == (
            "failed", "upstream_failed", "skipped",
        )  # fmt: skip
        assert managed.driver_lives() and not rewriting.asked
        assert "flights.run is paused" in out and "Hint: unpause flights.run" in out
    else:
        assert (states["check_run"], states["restore"], states["start"]) == ("success", "success", "skipped")


def test_a_scheduled_run_asks_nothing_of_a_job_that_is_left_stopped(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank_airflow.watch.paused.is_paused", lambda context, dag_id: True)
    monkeypatch.setattr("streambank_airflow.operators.hand_over.by_schedule", lambda context: True)
    check = CheckRunDagOperator(
        task_id="check_run", job="flights", run_dag_id="flights.run", jobs_file=str(managed.jobs_file)
    )
    run = SimpleNamespace(dag_id="flights.compact", run_id="scheduled__1", triggering_user_name=None)
    context: Any = {"dag_run": run, "ti": SimpleNamespace(task_id="check_run")}

    managed.control.set_desired("running", by={"user": "ann"})
    with pytest.raises(AirflowFailException, match=r"flights\.run is paused"):
        check.execute(context)
    managed.control.set_desired("stopped", by={"user": "ann"})
    assert check.execute(context)["paused"] is None


@pytest.mark.storm
def test_it_is_red_where_nobody_takes_over(
    airflow_database: None, managed: Managed, rewriting: Rewriting, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.start()
    monkeypatch.setattr(Watches, "begin", lambda self, **how: 0)
    rewriting.finds_nothing = True
    compact = dag(managed)
    compact.get_task("watched").timeout_s = 0.1  # type: ignore[union-attr]  # it is one of ours

    run = exchange(managed, OLD, compact)

    states = task_states(run)
    assert (run.state, states["keep_running"], states["watched"]) == ("failed", "success", "failed")
    assert states["go_back"] == "skipped" and managed.driver_lives()


def test_a_look_stops_nothing(airflow_database: None, managed: Managed, rewriting: Rewriting) -> None:
    managed.start()
    run_dag(build_dags(managed.jobs_file)["flights.savepoint"])
    epoch = managed.control.lease.view()
    run = run_dag(dag(managed), run_conf={**OLD, "dry_run": True})
    states = task_states(run)
    assert states.pop("preview") == states.pop("check_run") == "success"
    assert set(states.values()) == {"skipped"}
    assert xcom(run, "preview")["savepoint"] is None
    now = managed.control.lease.view()
    assert epoch is not None and now is not None and now.epoch == epoch.epoch


def test_each_dag_that_hands_the_job_over_is_expected_to_have_it_watched(managed: Managed) -> None:
    managed.declare(CHANGES + STANDBY_TABLE)
    hand_over = {
        dag_id.removeprefix("flights.")
        for dag_id, built in build_dags(managed.jobs_file).items()
        if any(getattr(task, "trigger_dag_id", None) == "flights.run" for task in built.tasks)
    }
    assert "failover" in hand_over and hand_over <= set(DAGS)


def test_only_a_job_that_declares_changes_has_forms_for_them(managed: Managed) -> None:
    verbs = {"flights.transform", "flights.bootstrap"}
    assert not verbs & set(build_dags(managed.jobs_file))
    managed.declare(CHANGES)
    dags = build_dags(managed.jobs_file)
    assert verbs <= set(dags)
    for verb in verbs:
        dags[verb].params.validate()
        assert DagSerialization.from_dict(DagSerialization.to_dict(dags[verb])).dag_id == verb
        assert dags[verb].params["dry_run"] is True
