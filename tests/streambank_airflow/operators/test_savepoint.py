from __future__ import annotations

import re
import shutil
from typing import Any

import pytest
from airflow.sdk import DAG, task

from streambank.core.errors import StorageError
from streambank.declaration.declaration import Job
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.savepoint import (
    CreateSavepointOperator,
    ImportSavepointOperator,
    VerifySavepointOperator,
)
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.jobs.managed_job import Managed

pytestmark = pytest.mark.usefixtures("airflow_database")


@task
def told(savepoint: Any) -> str:
    return f"told of {savepoint}"


def test_a_field_of_the_result_is_an_input_of_the_next_task(managed: Managed) -> None:
    where: dict[str, Any] = {"job": "flights", "jobs_file": str(managed.jobs_file)}
    with DAG("savepoint_then_batch", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", **where)
        take = CreateSavepointOperator(task_id="take", **where)
        start >> take
        output: Any = take.output
        told(output["savepoint"])
    run = run_dag(dag)
    result = xcom(run, "take")
    assert result["savepoint"].startswith("b0")
    assert xcom(run, "take", "savepoint") == result["savepoint"]
    assert xcom(run, "told") == f"told of {result['savepoint']}"


def test_a_take_and_a_verification_say_what_they_came_to(
    managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    where: dict[str, Any] = {"job": "flights", "jobs_file": str(managed.jobs_file)}
    with DAG("take_twice", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", **where)
        stop = StopStreamingJobOperator(task_id="stop", **where)
        take = CreateSavepointOperator(task_id="take", **where)
        again = CreateSavepointOperator(task_id="again", **where)
        quick = VerifySavepointOperator(task_id="quick", **where)
        full = VerifySavepointOperator(task_id="full", level="full", **where)
        sampled = VerifySavepointOperator(task_id="sampled", level="sampled", **where)
        start >> stop >> take >> again >> quick >> full >> sampled
    run = run_dag(dag)
    taken = xcom(run, "take")
    said = capfd.readouterr().out
    savepoint, batch = taken["savepoint"], taken["batch"]
    size = r"[\d.,]+ k?B"
    time = r"[\d.]+ m?s"
    for line in (
        rf"Job flights has stopped: at a batch boundary; .*; batch {batch}, after {time}\.",
        rf"{savepoint} holds batch {batch}: \d+ files, {size}, of which {size} are new, after {time}\.",
        rf"Savepoint {savepoint} of batch {batch} was there already: nothing was written\.",
        rf"{savepoint}, level quick: nothing is wrong after {time}; \d+ files, {size} compared by size\.",
        rf"{savepoint}, level full: nothing is wrong after {time}; \d+ files, {size} read and compared\.",
        rf"Sample of 1 savepoint of job flights, .*: nothing is wrong after {time}; \d+ objects?, {size} ",
    ):
        assert re.search(line, said), line


def test_a_copy_of_the_checkpoint_is_imported(managed: Managed) -> None:
    managed.start(until=3)
    managed.stop()
    shutil.copytree(managed.checkpoint, managed.folder / "backup")
    where: dict[str, Any] = {"job": "flights", "jobs_file": str(managed.jobs_file), "retries": 0}
    with DAG("import", schedule=None) as dag:
        good = ImportSavepointOperator(
            task_id="import", copy=str(managed.folder / "backup"), note="monday", pin=True, **where
        )
        live = ImportSavepointOperator(task_id="live", copy=str(managed.checkpoint), **where)
        good >> live
    run = run_dag(dag)
    assert task_states(run) == {"import": "success", "live": "failed"}, "the live checkpoint is no copy"
    result = xcom(run, "import")
    assert (result["batch"], result["passed_over"]) == (managed.last_batch(), [])
    kept = managed.repository.load("flights", result["savepoint"])
    assert kept.note == "monday" and managed.repository.pinned("flights", result["savepoint"])
    event = managed.control.last_event("savepoint-imported")
    assert event is not None and event["savepoint"] == result["savepoint"] and event["by"]["via"] == "airflow"


def test_nothing_is_taken_where_the_declaration_cannot_be_asked(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another try of the task, which has no name for it, would take a second savepoint."""
    managed.start(until=3)

    def is_away(*_: object) -> Job:
        raise StorageError("The storage is away.", code="storage-failed")

    monkeypatch.setattr(DeclaredJobs, "job", is_away)
    with DAG("away", schedule=None) as dag:
        CreateSavepointOperator(task_id="take", job="flights", jobs_file=str(managed.jobs_file))

    assert task_states(run_dag(dag)) == {"take": "failed"}
    assert not (managed.folder / "repository" / "repository.json").exists()
