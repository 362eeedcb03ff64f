"""`<job>.transform` that is rehearsed: the application runs on the new state before the job gets it."""

from __future__ import annotations

from typing import Any

import pytest

from streambank.core.units import utc_now
from streambank.drills.report import UNPROVEN, DrillReport, QueryDrill
from streambank.drills.request import DrillRequest
from tests.support.airflow_face.exchanged_job import CHANGES, WAY_BACK, Rewriting, dag, exchange, generation
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import Managed
from tests.support.waiting import poll


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
    assert (request.compare, request.by["task_id"]) == ("none", "rewrite")
    (made,) = request.savepoints.values()
    assert managed.repository.load("flights", made).derived_from == xcom(run, "stop")["savepoint"]
    assert managed.driver_lives()
    assert "| Rehearsal | The job's own application runs on a copy" in xcom(run, "preview", "plan_markdown")
    if fails:
        assert (states["rewrite"], states["restore"]) == ("failed", "upstream_failed")
        assert {states[task] for task in WAY_BACK} == {"success"} and generation(managed) == (1, None)
        said = capfd.readouterr().out
        assert (
            "The rehearsal FAILED at the step batches: No batch was committed within 30 minutes. Do not "
            in said
        )
        assert f"restore {made} before that is understood. flights/" in said and "[drill-timeout]" in said
        assert xcom(run, "rewrite") is None and "drill" in xcom(run, "rewrite", "report_markdown").lower()
    else:
        assert {states[task] for task in WAY_BACK} == {"skipped"} and generation(managed) == (2, None)
        done = xcom(run, "rewrite")
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
    assert (states["preview"], states["stop"]) == ("failed", "upstream_failed")
    assert "[rehearsal-not-run]" in capfd.readouterr().out
    assert managed.driver_lives() and not rewriting.asked
