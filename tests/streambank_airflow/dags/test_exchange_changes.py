"""`<job>.transform` and `.bootstrap`: what is declared is done and rehearsed, and what a form adds is not."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.core.units import utc_now
from streambank.drills.report import UNPROVEN, DrillReport, QueryDrill
from streambank.drills.request import DrillRequest
from streambank.job.savepoint import savepoint_job
from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.markdown import cell
from streambank_airflow.operators.rewrite import BootstrapStateOperator
from tests.support.airflow_face.exchanged_job import CHANGES, Rewriting, answering, dag, exchange, generation
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import BY, Managed
from tests.support.waiting import poll

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
    assert {states.pop(task) for task in ("keep_running", "watched")} == {"skipped"}
    assert set(states.values()) == {"success"}
    ((plan, _),) = rewriting.asked
    order, done = plan["order"], xcom(run, "exchange")
    assert (order["samples"], order["note"], order.get("from_form")) == (
        1 if verb == "transform" else 0, "of November", None,
    )  # fmt: skip
    assert managed.repository.load("flights", done["savepoint"]).derived_from == done["before"]
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
    assert (states["approve"], states["exchange"]) == ("success", "failed")
    assert not rewriting.asked and managed.control.last_event("stopped") is None
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
    assert task_states(run)["exchange"] == "failed"
    assert rewriting.asked and managed.control.last_event("stopped") is not None
    assert "[approval-outdated]" in capfd.readouterr().out
    assert generation(managed) == (1, None) and managed.driver_lives()


def test_the_table_of_a_plan_is_read_again_before_the_job_is_stopped(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.declare(CHANGES)
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(BootstrapStateOperator, "rewritten", lambda self, *given: asked.append(given))
    exchange = build_dags(managed.jobs_file)["flights.bootstrap"].get_task("exchange")
    assert isinstance(exchange, BootstrapStateOperator)
    exchange.planned = {"digest": "sha256:0", "of": "flights/b1", "table_digest": "5:1234567890"}
    exchange.before_exchange({}, {"operation": "bootstrap", "rehearse": True, **exchange.expected()})

    ((_, savepoint, order),) = asked
    assert savepoint == "flights/b1"
    assert order == {"operation": "bootstrap", "table_digest": "5:1234567890", "dry_run": True}


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


def rehearsal_of(request: DrillRequest, failed_step: Any = None) -> DrillReport:
    """What a rehearsal of what was asked came to; one that fails does so at this step."""
    (savepoint,) = request.savepoints.values()
    error = "No batch was committed within 30 minutes." if failed_step else ""
    query = QueryDrill("main", savepoint, 3, utc_now(), 1.0, not_compared=(f"{UNPROVEN}: nothing to read",))
    return DrillReport(
        request.job.name, str(request.repository), utc_now(), 1.0, (query,), failed_step=failed_step,
        code="drill-timeout" if failed_step else None, error=error, by=request.by, why=request.why,
    )  # fmt: skip


@pytest.mark.storm
@pytest.mark.parametrize("fails", [True, False])
def test_what_fails_in_a_rehearsal_is_not_restored_and_the_job_goes_on_as_it_was(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    fails: bool,
) -> None:
    managed.declare(CHANGES)
    managed.start()
    managed.wait_for_batch(1)
    asked: list[DrillRequest] = []

    def rehearse(request: DrillRequest, **how: Any) -> DrillReport:
        asked.append(request)
        assert not managed.driver_lives()
        return rehearsal_of(request, "batches" if fails else None)

    monkeypatch.setattr("streambank.drills.of_savepoint.rehearse", rehearse)
    run = exchange(managed, {"dry_run": False, "rehearse": True}, dag(managed, "transform"))

    (request,), states = asked, task_states(run)
    assert (request.compare, request.by["task_id"]) == ("none", "exchange")
    (made,) = request.savepoints.values()
    assert managed.repository.load("flights", made).derived_from is not None
    assert managed.driver_lives()
    assert "| Rehearsal | The job's own application runs on a copy" in xcom(run, "preview", "plan_markdown")
    if fails:
        assert states["exchange"] == "failed" and generation(managed) == (1, None)
        said = capfd.readouterr().out
        assert (
            "The rehearsal FAILED at the step batches: No batch was committed within 30 minutes. Do not "
            in said
        )
        assert f"restore {made} before that is understood. flights/" in said and "[drill-timeout]" in said
        assert xcom(run, "exchange") is None and "drill" in xcom(run, "exchange", "report_markdown").lower()
    else:
        assert states["exchange"] == "success" and generation(managed) == (2, None)
        done = xcom(run, "exchange")
        assert done["rehearsed"] is True
        assert done["rehearsal"].startswith("The job's application ran on it (query main: 0 batches of")
        assert "Not proven: of query main no batch was processed" in done["rehearsal"]


@pytest.mark.storm
def test_a_job_that_cannot_be_rehearsed_is_not_stopped_for_a_rehearsal(
    airflow_database: None,
    managed: Managed,
    rewriting: Rewriting,
    capfd: pytest.CaptureFixture[str],
) -> None:
    managed.declare(CHANGES)
    managed.start()
    poll(lambda: managed.control.query_facts() is not None)
    facts = managed.control.query_facts() or {}
    managed.control.record_query(None, {**facts, "output": {"kind": "foreachBatch"}})
    form = {"dry_run": False, "rehearse": True}
    run = run_dag(dag(managed, "transform"), run_conf=form, mark_success_pattern="approve")
    states = task_states(run)
    assert (states["preview"], states["exchange"]) == ("failed", "upstream_failed")
    assert "[rehearsal-not-run]" in capfd.readouterr().out
    assert managed.driver_lives() and not rewriting.asked
