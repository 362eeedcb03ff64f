"""What an exchange checks before it stops a job: the form, the schedule, and whether it can be done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators.job import StopStreamingJobOperator
from streambank_airflow.operators.rewrite import NOTHING_KEY
from tests.support.airflow_face.exchanged_job import OLD, Rewriting, dag
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import Managed


@pytest.mark.parametrize(
    ("verb", "form"),
    [("compact", {"dry_run": False, "where": False}), ("compact", {**OLD, "idle_for": "3d"})],
)
def test_a_mistake_in_the_form_stops_nothing_and_starts_nothing(
    airflow_database: None, managed: Managed, rewriting: Rewriting, verb: str, form: dict[str, Any]
) -> None:
    managed.start()
    managed.stop("for the night")
    run = run_dag(dag(managed, verb), run_conf=form)
    states = task_states(run)
    assert (run.state, states["preview"], states["stop"]) == ("failed", "failed", "upstream_failed")
    assert states["go_back"] == "skipped"
    assert not managed.driver_lives() and not rewriting.asked


def test_what_is_declared_is_what_the_form_begins_with(managed: Managed) -> None:
    managed.declare('\n[jobs.flights.compact]\nschedule = "@weekly"\nidle_for = "30d"\nmax_rows = 1000\n')
    compact = dag(managed)
    assert str(compact.schedule) == "@weekly"
    assert (compact.params["idle_for"], compact.params["max_rows"]) == ("30d", 1000)
    compact.params.validate()


def test_a_schedule_leaves_alone_what_somebody_has_stopped(managed: Managed) -> None:
    hook = StreambankHook(jobs_file=str(managed.jobs_file))
    for kind, wanted in {"scheduled": True, "manual": False}.items():
        stop = dag(managed).get_task("stop")
        assert isinstance(stop, StopStreamingJobOperator)
        context: Any = {
            "params": {"dry_run": False, "note": None},
            "dag_run": SimpleNamespace(run_type=kind),
            "ti": SimpleNamespace(xcom_pull=lambda **_: None),
        }
        stop.render_template_fields(context, stop.get_template_env())
        assert stop.skip_if_stopped is wanted

    mine = {"dag_id": "flights.compact", "run_id": "run-1"}
    assert hook.jobs.is_left_stopped("flights", by=mine), "it was never started"
    managed.start()
    assert not hook.jobs.is_left_stopped("flights", by=mine)
    managed.control.set_desired("stopped", by=mine)
    assert not hook.jobs.is_left_stopped("flights", by=mine), "another try of the run that stopped it"
    assert hook.jobs.is_left_stopped("flights", by={**mine, "run_id": "run-2"})
    assert hook.jobs.is_left_stopped("flights", by={**mine, "dag_id": "own"}), "whose schedule is the same"


@pytest.mark.parametrize(
    ("verb", "form", "code"),
    [
        ("rescale", {"partitions": 7}, "hdfs-backed"),
        pytest.param(
            "compact",
            {"where": False, "idle_for": "30d", "dry_run": False},
            "no-such-savepoint",
            marks=pytest.mark.storm,
        ),
        pytest.param("compact", {**OLD, "operator": 5}, "which-operator", marks=pytest.mark.storm),
    ],
)
def test_what_cannot_be_done_stops_no_job_that_runs(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    capfd: pytest.CaptureFixture[str],
    verb: str,
    form: dict[str, Any],
    code: str,
) -> None:
    managed.start()
    run = run_dag(dag(managed, verb), run_conf=form)
    states = task_states(run)
    assert (run.state, states["preview"], states["stop"]) == ("failed", "failed", "upstream_failed")
    assert states["go_back"] == "skipped"
    assert managed.driver_lives() and len(managed.control.lease.recent_launches()) == 1
    assert f"[{code}]" in capfd.readouterr().out and not rewriting.asked


@pytest.mark.storm
def test_a_schedule_for_which_it_is_too_early_leaves_the_job_alone(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In the first 30 days no savepoint is 30 days old."""
    managed.declare('\n[jobs.flights.compact]\nschedule = "@weekly"\nidle_for = "30d"\n')
    managed.start()
    monkeypatch.setattr("streambank_airflow.operators.rewrite.base.by_schedule", lambda context: True)

    run = run_dag(dag(managed))

    states = task_states(run)
    assert (run.state, states.pop("check_run"), set(states.values())) == ("success", "success", {"skipped"})
    assert managed.driver_lives() and len(managed.control.lease.recent_launches()) == 1
    assert not rewriting.asked
    assert xcom(run, "preview", NOTHING_KEY).startswith("No savepoint of flights is from ")
    assert "The job is left alone: No savepoint of flights is from " in capfd.readouterr().out
