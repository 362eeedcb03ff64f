"""`<job>.transform` and `.bootstrap`: what is declared is done, and what a form adds is not."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.job.savepoint import savepoint_job
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.markdown import cell
from streambank_airflow.operators.rewrite import BootstrapStateOperator
from tests.support.airflow_face.exchanged_job import CHANGES, WAY_BACK, Rewriting, answering, dag, generation
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import BY, Managed

SET = "Set 3 rows and delete 2 keys in the state of flights? It runs, and will be stopped."
MADE = "Give the state of flights 4 rows from a table? It has 9 rows now. It runs, and will be stopped."


@pytest.mark.storm
@pytest.mark.parametrize(("verb", "asks"), [("transform", SET), ("bootstrap", MADE)], ids=["set", "made"])
def test_a_change_that_is_declared_is_made_once_a_person_has_read_it(
    airflow_database: None, managed: Managed, rewriting: Rewriting, verb: str, asks: str
) -> None:
    managed.declare(CHANGES)
    managed.start()
    savepoint_job(managed.job, by=BY)
    form = {"dry_run": False, "note": "of November", **({"existing": "keep"} if verb == "bootstrap" else {})}

    with answering("Approve", verb=verb) as shown:
        run = run_dag(dag(managed, verb), run_conf=form)

    question, states = shown.result(), task_states(run)
    assert (question.subject, question.options) == (asks, ["Approve", "Reject"])
    assert {states.pop(task) for task in WAY_BACK} == {"skipped"} and set(states.values()) == {"success"}
    ((plan, _),) = rewriting.asked
    order, done = plan["order"], xcom(run, "rewrite")
    assert (order["samples"], order["note"], order.get("from_form")) == (
        1 if verb == "transform" else 0, "of November", None,
    )  # fmt: skip
    assert done["savepoint"] == xcom(run, "restore")["savepoint"] != xcom(run, "stop")["savepoint"]
    assert (done["rehearsed"], done["rehearsal"], generation(managed)) == (False, None, (2, None))
    body = question.body
    if verb == "transform":
        assert order["sets"] == ["value.count = value.count * 100"] and order["where"] == "key.k = 'a|b'"
        assert "| Set | value.count = value.count \\* 100 |" in body
        assert "| Only rows where | key.k = 'a\\|b' |" in body
        assert "| Delete keys where | value.count &lt; 3 |" in body
        assert (
            "| Operator 0, default | 3 rows set |" in body and '{"count": 1} becomes {"count": 100}' in body
        )
        assert (done["keys"], done["rows"], done["rows_before"], done["changed"]) == (2, 2, 9, 3)
    else:
        assert order["query"] == "SELECT k, count(*) AS count FROM source GROUP BY k"
        assert (order["format"], order["values"], order["existing"]) == ("csv", ["count = n"], "keep")
        assert order["table"] == f"file://{managed.jobs_file.parent}/totals" and cell(order["table"]) in body
        assert "| Rows that are there | 9 rows. They stay, also where the table has" in body
        assert (done["rows"], done["table_rows"], done["existing_rows"]) == (4, 5, 9)
        assert order["table_digest"] == xcom(run, "preview")["table_digest"] == "5:1234567890"


@pytest.mark.storm
def test_a_table_that_has_changed_since_the_plan_stops_no_job(
    airflow_database: None, managed: Managed, rewriting: Rewriting, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.declare(CHANGES)
    managed.start()
    savepoint_job(managed.job, by=BY)
    rewriting.table_changes = True
    with answering("Approve", verb="bootstrap"):
        run = run_dag(dag(managed, "bootstrap"), run_conf={"dry_run": False, "existing": "keep"})
    states = task_states(run)
    assert (states["approve"], states["check_table"], states["stop"]) == (
        "success",
        "failed",
        "upstream_failed",
    )
    assert {states[task] for task in WAY_BACK} == {"skipped"} and not rewriting.asked
    assert "[approval-outdated]" in capfd.readouterr().out
    assert generation(managed) == (1, None)


@pytest.mark.storm
def test_a_table_that_changes_after_the_job_was_stopped_leaves_the_job_as_it_was(
    airflow_database: None, managed: Managed, rewriting: Rewriting, capfd: pytest.CaptureFixture[str]
) -> None:
    managed.declare(CHANGES)
    managed.start()
    savepoint_job(managed.job, by=BY)
    rewriting.fails = RefusedError("The table gives other rows now.", code="approval-outdated", hint="")
    with answering("Approve", verb="bootstrap"):
        run = run_dag(dag(managed, "bootstrap"), run_conf={"dry_run": False, "existing": "keep"})
    states = task_states(run)
    assert (states["check_table"], states["stop"], states["rewrite"]) == ("success", "success", "failed")
    assert rewriting.asked and {states[task] for task in WAY_BACK} == {"success"}
    assert "[approval-outdated]" in capfd.readouterr().out
    assert generation(managed) == (1, None) and managed.driver_lives()


def test_the_table_of_a_plan_is_read_again_before_the_job_is_stopped(managed: Managed) -> None:
    managed.declare(CHANGES)
    dags = build_dags(managed.jobs_file)
    assert "check_table" not in dags["flights.transform"].task_ids, "it reads no table"
    check, made = (dags["flights.bootstrap"].get_task(name) for name in ("check_table", "rewrite"))
    assert isinstance(check, BootstrapStateOperator) and isinstance(made, BootstrapStateOperator)
    assert (check.upstream_task_ids, check.downstream_task_ids) == ({"approve"}, {"stop"})
    assert check.plan_only and check.planned_table == made.planned_table and check.planned == made.planned


@pytest.mark.parametrize(
    ("verb", "form", "code"),
    [
        ("transform", {"sets": ["value.count = 0"]}, "expression-not-declared"),
        ("transform", {"operator": 3}, "expression-not-declared"),
        ("bootstrap", {"table": "/etc"}, "place-not-allowed"),
        ("bootstrap", {"sql": "SELECT 1"}, "expression-not-declared"),
        ("bootstrap", {"keys": ["k = 1"]}, "expression-not-declared"),
    ],
)
def test_a_form_makes_no_change_that_is_not_declared(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    capfd: pytest.CaptureFixture[str],
    verb: str,
    form: dict[str, Any],
    code: str,
) -> None:
    """A trigger by REST may name fields that the form does not have."""
    managed.declare(CHANGES)
    run = run_dag(dag(managed, verb), run_conf={"dry_run": False, **form})
    assert (run.state, task_states(run)["preview"]) == ("failed", "failed")
    assert f"[{code}]" in capfd.readouterr().out and not rewriting.asked
