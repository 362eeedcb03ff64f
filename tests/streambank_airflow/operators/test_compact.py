"""A job's checkpoint is compacted by a task: planned, done, tried again, brought back, deleted for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from streambank.control.processes import this_process
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.storage import open_store
from streambank.storage.local import trees
from streambank_airflow.operators.compact import (
    CleanJobOperator,
    CompactCheckpointOperator,
    PurgeQuarantineOperator,
    UndoCompactionOperator,
)
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.checkpoint.with_garbage import closure, write_with_garbage
from tests.support.jobs.declared import BY, write_jobs
from tests.support.jobs.left_behind import go_on, next_generation, save
from tests.support.storage.contents import contents

pytestmark = pytest.mark.usefixtures("airflow_database")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose checkpoint has garbage, in the jobs file that the environment names."""
    file = write_jobs(tmp_path)
    monkeypatch.setenv("STREAMBANK_JOBS", str(file))
    job = load_jobs(file).job("flights")
    write_with_garbage(open_store(job.checkpoint))
    return job


def run(operator: Any = CompactCheckpointOperator, **arguments: Any) -> Any:
    with DAG("one_task", schedule=None, render_template_as_native_obj=True) as dag:
        operator(task_id="task", job="flights", **arguments)
    return run_dag(dag)


def result_of(operator: Any = CompactCheckpointOperator, **arguments: Any) -> Any:
    done = run(operator, **arguments)
    assert task_states(done) == {"task": "success"}
    return xcom(done, "task")


def test_planned_done_and_back(job: Job) -> None:
    checkpoint = open_store(job.checkpoint)
    before, needed = contents(checkpoint), closure(checkpoint)

    planned = result_of(plan_only="{{ true }}", keep_batches="{{ 1 + 0 }}")
    assert (planned["dry_run"], planned["quarantine"]) == (True, None)
    assert contents(checkpoint) == before

    done = result_of(note="too many files")
    assert (done["mode"], done["files"], done["bytes"]) == ("stopped", planned["files"], planned["bytes"])
    assert done["kept_files"] == len(contents(checkpoint))
    assert closure(checkpoint) == needed
    event = job.records().last_event("compacted")
    assert event is not None and event["why"] == "too many files" and event["by"]["dag_id"] == "one_task"

    back = result_of(UndoCompactionOperator, quarantine=done["quarantine"], note="on second thoughts")
    assert (back["files"], back["left_files"], back["already_done"]) == (done["files"], 0, False)
    assert contents(checkpoint) == before
    event = job.records().last_event("compaction-undone")
    assert event is not None and event["why"] == "on second thoughts" and event["by"]["dag_id"] == "one_task"
    assert result_of(UndoCompactionOperator, quarantine=done["quarantine"]) == {**back, "already_done": True}


def test_deleted_for_good_beside_a_driver(job: Job) -> None:
    done = result_of()
    driver = job.records().lease.acquire([this_process("driver")])
    try:
        gone = result_of(PurgeQuarantineOperator, quarantine=done["quarantine"], note="a week later")
    finally:
        driver.release()
    assert (gone["files"], gone["bytes"]) == (done["files"], done["bytes"])
    assert not contents(open_store(done["quarantine"]))
    event = job.records().last_event("quarantine-purged")
    assert event is not None and event["why"] == "a week later" and event["by"]["dag_id"] == "one_task"
    assert result_of(PurgeQuarantineOperator, quarantine=done["quarantine"]) == {**gone, "already_done": True}


def test_files_that_are_nowhere_fail_an_undo(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    done = result_of()
    place = open_store(done["quarantine"])
    lost = next(info.path for info in place.list("files"))
    place.delete(lost)
    assert task_states(run(UndoCompactionOperator, quarantine=done["quarantine"])) == {"task": "failed"}
    assert f"such as {lost.removeprefix('files/')}" in capfd.readouterr().out


@pytest.mark.parametrize("operator", [UndoCompactionOperator, PurgeQuarantineOperator])
def test_without_a_quarantine_there_is_nothing_to_do(job: Job, operator: Any) -> None:
    assert task_states(run(operator, quarantine="{{ none }}")) == {"task": "skipped"}
    assert task_states(run(operator, quarantine="{{ ''  }}")) == {"task": "skipped"}
    assert task_states(run(operator, quarantine="x", only_if=False)) == {"task": "skipped"}


def test_a_quarantine_of_nobody_is_refused(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    for operator in (UndoCompactionOperator, PurgeQuarantineOperator):
        done = run(operator, quarantine=f"{job.checkpoint}.quarantine-x")
        assert task_states(done) == {"task": "failed"}
        assert "[not-a-quarantine]" in capfd.readouterr().out


def test_beside_a_driver_only_if_it_may(job: Job, capfd: pytest.CaptureFixture[str]) -> None:
    driver = job.records().lease.acquire([this_process("driver")])
    try:
        assert task_states(run(stopped=True)) == {"task": "failed"}
        assert "[lease-held]" in capfd.readouterr().out
        assert (result_of()["mode"], result_of()["files"]) == ("running", 0)
    finally:
        driver.release()


def test_a_form_may_say_no(job: Job) -> None:
    assert task_states(run(only_if="{{ false }}")) == {"task": "skipped"}


def test_a_retry_finds_it_done(job: Job) -> None:
    task = CompactCheckpointOperator(task_id="task", job="flights")
    by = {**BY, "asker": "nightly run-1 task -1 0"}
    first = task.hook.checkpoints.compact("flights", stopped=True, by=by)
    again = task.hook.checkpoints.compact("flights", stopped=True, by=by)
    assert first["main"].files == again["main"].files and again["main"].already_done


def test_what_was_left_is_removed_by_a_policy(job: Job) -> None:
    next_generation(job, save(job), sink="accept")
    go_on(job)
    assert task_states(run(CleanJobOperator)) == {"task": "failed"}, "nothing says what goes"
    planned = result_of(CleanJobOperator, keep="{{ 1 }}", keep_for_s="1ms", plan_only=True)
    assert (planned["dry_run"], planned["removed"], planned["directories"]) == (True, 1, 1)
    assert open_store(job.checkpoint).exists("metadata")
    assert result_of(CleanJobOperator, keep=2, keep_for_s="1ms")["removed"] == 0
    done = result_of(CleanJobOperator, keep=1, keep_for_s="1ms", note="space")
    assert (done["removed"], done["bytes"], done["failed"]) == (1, planned["bytes"], 0)
    assert not contents(open_store(job.checkpoint))
    event = job.records().last_event("generation-removed")
    assert event is not None and event["why"] == "space" and event["by"]["dag_id"] == "one_task"


def test_what_stays_since_others_could_exchange_it_fails_no_cleaning(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a share that shows everything as open to everybody, each night's cleaning would."""
    next_generation(job, save(job), sink="accept")
    go_on(job)
    place = Path(job.checkpoint.removeprefix("file://"))
    place.parent.chmod(0o777)
    monkeypatch.setattr(trees, "_is_this_users", lambda found, others: False)
    done = result_of(CleanJobOperator, keep=1, keep_for_s="1ms")
    assert (done["removed"], done["directories"], done["failed"]) == (0, 1, 0)
    assert (place / "metadata").exists()
