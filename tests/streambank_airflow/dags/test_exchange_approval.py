"""What a person sees of an exchange before the job is stopped, and when a person is asked at all."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.core.units import from_json_time, utc_now
from streambank.declaration.state import CompactPolicy
from streambank.job.savepoint import savepoint_job
from streambank.repository.catalog import heads
from streambank_airflow.dags.forms.rewrite import compact_form
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.rewrite import NOTHING_KEY, CompactStateOperator
from streambank_airflow.operators.rewrite.base import digest_of
from tests.support.airflow_face.exchanged_job import (
    OLD,
    WAY_BACK,
    Rewriting,
    answering,
    dag,
    exchange,
    generation,
)
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import BY, Managed

ANN = {"triggered_by": "ann", "dag_id": "flights.restore", "run_id": "manual__ann"}
APPROVES = "Remove 2 keys (2 of 9 rows) from the state of flights? It runs, and will be stopped."


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_a_person_sees_what_goes_before_anything_is_stopped(
    airflow_database: None, managed: Managed, rewriting: Rewriting, option: str
) -> None:
    managed.declare('\n[jobs.flights.restore]\napprovers = ["ann"]\n')
    managed.start()
    savepoint_job(managed.job, by=BY)
    lived: list[bool] = []

    def look() -> None:
        lived.append(managed.driver_lives() and not rewriting.asked)

    with answering(option, before=look) as shown:
        run = run_dag(dag(managed), run_conf=OLD)

    question, states = shown.result(), task_states(run)
    assert (question.subject, question.options) == (APPROVES, ["Approve", "Reject"])
    assert question.assignees == [{"id": "ann", "name": "ann"}]
    assert "| Remove keys where | value.count &lt; 3 |" in question.body
    assert "| Operator 0, stateStoreSave | 2 keys with 2 of 9 rows, about 10 B. They start from zero. |" in (
        question.body
    )
    assert lived == [True]
    if option == "Approve":
        assert (states["stop"], states["restore"], generation(managed)) == ("success", "success", (2, None))
    else:
        assert (run.state, states["preview"], states["approve"]) == ("success", "success", "success")
        assert {states[task] for task in ("stop", "rewrite", "restore", "start", *WAY_BACK)} == {"skipped"}
        assert managed.driver_lives() and not rewriting.asked


@pytest.mark.storm
def test_where_nothing_would_go_nobody_is_asked_and_nothing_is_stopped(
    airflow_database: None, managed: Managed, rewriting: Rewriting
) -> None:
    managed.start()
    savepoint_job(managed.job, by=BY)
    rewriting.shows_nothing = True

    run = run_dag(dag(managed), run_conf=OLD)

    states = task_states(run)
    assert (states.pop("preview"), states.pop("check_run")) == ("success", "success")
    assert set(states.values()) == {"skipped"}
    assert xcom(run, "preview", NOTHING_KEY).endswith(" nothing goes.")
    assert managed.driver_lives() and not rewriting.asked


@pytest.mark.parametrize("saved", [pytest.param(False, marks=pytest.mark.storm), True])
def test_what_would_go_is_counted_in_how_things_are_now(
    airflow_database: None, managed: Managed, rewriting: Rewriting, saved: bool
) -> None:
    """The newest savepoint may be of last week, when there was nothing to remove; or there is none yet."""
    managed.start()
    before = savepoint_job(managed.job, by=BY).savepoints["main"].batch if saved else -1
    managed.wait_for_batch(before + 2)

    run = run_dag(dag(managed), run_conf={**OLD, "dry_run": True, "note": "too many"})

    counted = xcom(run, "preview")
    assert (run.state, counted["batch"] >= before + 2) == ("success", True)
    assert counted["of"] == f"flights/{next(heads(managed.repository.store, 'flights')).savepoint}"
    assert managed.driver_lives() and not rewriting.asked


@pytest.mark.parametrize(
    ("declared", "kind", "asks"),
    [
        ("", "manual", True),
        ("", "scheduled", False),
        ("approve = true", "scheduled", True),
        ("", "operator_triggered", True),
    ],
)
def test_a_schedule_that_is_declared_is_the_consent_unless_it_says_otherwise(
    managed: Managed, declared: str, kind: str, asks: bool
) -> None:
    managed.declare(f'\n[jobs.flights.compact]\nschedule = "@weekly"\nidle_for = "30d"\n{declared}\n')
    preview = dag(managed).get_task("preview")
    assert isinstance(preview, CompactStateOperator)
    answers = {**dict.fromkeys(compact_form((), CompactPolicy())), "where": None, "dry_run": False}
    context: Any = {"params": answers, "dag_run": SimpleNamespace(run_type=kind)}
    preview.render_template_fields(context, preview.get_template_env())
    assert preview.only_if is asks


@pytest.mark.storm
def test_a_restore_by_somebody_else_makes_what_was_approved_outdated(
    airflow_database: None, managed: Managed, rewriting: Rewriting, capfd: pytest.CaptureFixture[str]
) -> None:
    """The plan counted the keys of another state; the job is not even stopped for it."""
    managed.start()
    savepoint_job(managed.job, by=BY)

    def restore() -> None:
        generations = managed.control.generations()
        proposed = generations.propose(taken=lambda location: False)
        made = replace(proposed, by=ANN)
        generations.switch(made, operation=SimpleNamespace(check=lambda: None))  # type: ignore[arg-type]

    with answering("Approve", before=restore):
        run = run_dag(dag(managed), run_conf=OLD)

    states = task_states(run)
    assert (run.state, states["approve"], states["stop"]) == ("failed", "success", "failed")
    assert {states[task] for task in WAY_BACK} == {"skipped"}
    assert managed.driver_lives() and not rewriting.asked
    out = capfd.readouterr().out
    assert "[approval-outdated]" in out
    assert "flights is in generation 2 now, made by ann by flights.restore at " in out


def test_no_more_keys_go_than_a_person_has_seen_and_by_the_time_of_the_plan(
    airflow_database: None, managed: Managed, rewriting: Rewriting
) -> None:
    managed.start()
    exchange(managed, OLD)

    ((plan, _),) = rewriting.asked
    planned = plan["order"]["planned"]
    assert planned["keys"] == {"0": 2}
    assert from_json_time(planned["now"]) < utc_now() and "watermark_ms" in planned


@pytest.mark.parametrize("left", ["text", "nothing"])
def test_a_plan_of_the_version_before_has_left_its_digest_alone(managed: Managed, left: str) -> None:
    dag(managed)
    asked: dict[str, Any] = {
        "job": "flights",
        "jobs_file": str(managed.jobs_file),
        "where": True,
        "from_form": True,
    }
    plan = CompactStateOperator(task_id="a", **asked)
    planned = digest_of(plan.request()) if left == "text" else None
    rewrite_task = CompactStateOperator(task_id="b", planned=planned, **asked)
    assert rewrite_task._limits(plan.request()) == {}
    with pytest.raises(RefusedError, match="the declaration of the job has changed"):
        CompactStateOperator(task_id="c", planned="sha256:0", **asked)._limits(plan.request())


@pytest.mark.storm
def test_a_start_that_a_stop_has_overtaken_ends_no_run_well_and_nothing_goes_back(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is stopped by that person's wish, in the state that this run has given it."""
    managed.start()
    restore = RestoreSavepointOperator._restore

    def restore_and_be_stopped(self: RestoreSavepointOperator, context: Any) -> dict[str, Any]:
        done = restore(self, context)
        managed.control.set_desired("stopped", by={**ANN, "dag_id": "flights.stop"}, why="maintenance")
        return done

    monkeypatch.setattr(RestoreSavepointOperator, "_restore", restore_and_be_stopped)

    run = exchange(managed, OLD)

    states = task_states(run)
    assert (run.state, states["restore"], states["start"]) == ("failed", "success", "failed")
    assert {states[task] for task in WAY_BACK} == {"skipped"}
    assert (generation(managed), managed.driver_lives()) == ((2, None), False)
    out = capfd.readouterr().out
    assert "Job flights was set to stopped by ann by flights.stop at " in out and ": maintenance." in out
