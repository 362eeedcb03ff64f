"""What a person sees of an exchange before the job is stopped, and when a person is asked at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streambank.job.savepoint import savepoint_job
from streambank.repository.catalog import heads
from streambank_airflow.dags.forms import rewrite
from streambank_airflow.operators.rewrite import NOTHING_KEY, CompactStateOperator
from tests.support.airflow_face.exchanged_job import OLD, WAY_BACK, Rewriting, answering, dag, generation
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import BY, Managed

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
    answers = {**{name: None for name in rewrite.COMPACT_FIELDS}, "dry_run": False, "note": None}
    context: Any = {"params": answers, "dag_run": SimpleNamespace(run_type=kind)}
    preview.render_template_fields(context, preview.get_template_env())
    assert preview.only_if is asks
