from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import DAG

from streambank.core import errors
from streambank_airflow.failures import END_GROUP, airflow_failures, close_log, engine_error
from streambank_airflow.operators.job import StartStreamingJobOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator
from tests.support.airflow_face.metadata_db import run_dag
from tests.support.jobs.managed_job import Managed

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.StreambankError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_retry_may_heal_is_retried_and_the_rest_fails_for_good(
    kind: type[errors.StreambankError],
) -> None:
    with pytest.raises(AirflowException) as caught, airflow_failures():
        raise kind("Batch 7 is gone.", code="some-code", hint="Take batch 8.")

    assert isinstance(caught.value, AirflowFailException) is not kind.retryable
    assert str(caught.value) == "Batch 7 is gone. [some-code]\nHint: Take batch 8."
    keeps_its_traceback = kind.retryable or kind.exit_code == errors.InternalError.exit_code
    assert isinstance(caught.value.__cause__, kind) is keeps_its_traceback
    assert caught.value.__suppress_context__
    assert isinstance(engine_error(caught.value), kind), "callbacks find it all the same"


def test_conflicts_and_storage_errors_are_the_ones_that_are_retried() -> None:
    assert {kind for kind in KINDS if kind.retryable} == {errors.ConflictError, errors.StorageError}


def test_an_error_without_a_hint_promises_none() -> None:
    with pytest.raises(AirflowException, match=r"^Broken. \[internal\]$"), airflow_failures():
        raise errors.InternalError("Broken.")


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(ZeroDivisionError), airflow_failures():
        _ = 1 // 0


def last_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "airflow.task"][-3:]


@pytest.mark.airflow
@pytest.mark.usefixtures("airflow_database")
def test_the_log_of_a_failed_task_ends_with_what_why_and_what_to_do(
    managed: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    with DAG("flights.night") as dag:
        CreateSavepointOperator(task_id="take", job="flights", jobs_file=str(managed.jobs_file), batch=7)
    run_dag(dag)
    what, why, do = last_errors(caplog)
    assert what == "What: task flights.night.take failed; Airflow does not try again."
    assert why.startswith("Why: ") and why.endswith("[never-started]")
    assert do == "What to do: Start it first: run StartStreamingJobOperator."
    assert "DAG TEST" in caplog.records[-1].getMessage() and caplog.records[-2].getMessage() == do
    assert caplog.records[-5].getMessage() == END_GROUP, "Airflow's page shows the group of callbacks folded"


@pytest.mark.airflow
@pytest.mark.usefixtures("airflow_database")
def test_a_task_that_is_tried_again_says_so(managed: Managed, caplog: pytest.LogCaptureFixture) -> None:
    (managed.folder / "spark" / "bin" / "spark-submit").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with DAG("flights.night") as dag:
        StartStreamingJobOperator(
            task_id="start",
            job="flights",
            jobs_file=str(managed.jobs_file),
            retries=1,
            retry_delay=timedelta(0),
        )
    run_dag(dag)
    said = [one.getMessage() for one in caplog.records if one.name == "airflow.task"]
    assert [line for line in said if line.startswith("What: ")] == [
        "What: task flights.night.start failed; attempt 1 of 2, Airflow tries again.",
        "What: task flights.night.start failed; Airflow does not try again.",
    ]


def test_a_refusal_of_our_own_ends_the_log_alike(caplog: pytest.LogCaptureFixture) -> None:
    task = SimpleNamespace(dag_id="flights.restore", task_id="approve", job="flights", retries=3)
    error = AirflowFailException("The plan is old. Nothing was changed. Hint: trigger it again.")
    close_log({"ti": SimpleNamespace(task=task, try_number=1), "exception": error})
    assert last_errors(caplog) == [
        "What: task flights.restore.approve failed; Airflow does not try again.",
        "Why: The plan is old. Nothing was changed.",
        "What to do: Trigger it again.",
    ]


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), "killed", None, AirflowException("plain")])
def test_what_is_not_ours_is_left_to_airflow(error: object, caplog: pytest.LogCaptureFixture) -> None:
    task = SimpleNamespace(dag_id="d", task_id="t", job="flights", retries=0)
    close_log({"ti": SimpleNamespace(task=task, try_number=1), "exception": error})
    assert not caplog.records
