from __future__ import annotations

from pathlib import Path
from typing import Any

from streambank.control.progress import ProgressWriter
from streambank.declaration.declaration import Job
from streambank.overview.recoveries import MOST, recoveries_part
from streambank.overview.snapshot import snapshot
from tests.support.cli import succeed
from tests.support.jobs.declared import BY, declare
from tests.support.jobs.left_behind import next_generation, save
from tests.support.sla.drilled_job import drilled


def driven(job: Job, epoch: int, *batches: int) -> None:
    """A driver that was launched, and recorded these batches."""
    records = job.records()
    records.record_event("launched", launch_id=f"launch-{epoch}")
    records.record_event("driver-started", launch_id=f"launch-{epoch}", epoch=epoch)
    writer = ProgressWriter(records.store, None, epoch=epoch)
    for batch in batches:
        writer.add({"runId": f"run-{epoch}", "batchId": batch})
    writer.flush()


def test_a_restore_has_its_steps_up_to_the_first_batch(folder: Path) -> None:
    job = declare(folder, batches=3)
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    driven(job, 1, 0, 1, 2)
    savepoint = save(job)
    next_generation(job, savepoint, sink="accept")
    (one,) = recoveries_part(job, job.records())["restores"]
    assert one["rto_s"] is None and [step["name"] for step in one["steps"]] == ["restore"]
    driven(job, 2, 3)
    (one,) = recoveries_part(job, job.records())["restores"]
    assert (one["savepoint"], one["query"], one["passed"], one["replica"]) == (savepoint, "main", True, None)
    assert [step["name"] for step in one["steps"]] == ["restore", "wait", "start"]
    assert one["steps"][0]["seconds"] == one["seconds"] > 0 and one["rpo_s"] >= 0
    assert abs(one["rto_s"] - sum(step["seconds"] for step in one["steps"])) < 0.5
    assert one["by"].startswith(BY["user"])


def test_drills_are_shown_newest_first_with_the_step_that_failed(folder: Path) -> None:
    job = declare(folder)
    drilled(job, 1)
    drilled(job, 2, failed_step="compare", error="batch 7 differs", repository="s3://elsewhere", by=BY)
    failed, passed = recoveries_part(job, job.records())["drills"]
    assert passed["passed"] and passed["rto_s"] == 17.0 and passed["rpo_s"] == 3600.0
    assert passed["savepoint"] == "b000041-c28c1611906f" and passed["steps"][0] == {
        "name": "choose",
        "seconds": 1.0,
    }
    assert (failed["passed"], failed["step"], failed["why"]) == (False, "compare", "batch 7 differs")
    assert failed["replica"] == "s3://elsewhere" and failed["rto_s"] is None


def test_a_savepoint_says_when_and_from_where_it_was_drilled_last(folder: Path) -> None:
    job = declare(folder, batches=2)
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    savepoint, where = save(job), (folder / "replica").as_uri()

    def shown() -> tuple[Any, Any, str]:
        (row,) = snapshot(job, parts={"savepoints"}).parts["savepoints"]["savepoints"]
        asked = ("show", savepoint, "-r", job.repository, "--jobs", folder / "streaming_jobs.toml")
        document = succeed(*asked, "--json").document["drilled"]
        return row["drilled"], document, succeed(*asked).out

    assert shown()[:2] == (None, None)
    drilled(job, 1, savepoint=savepoint, repository=job.repository)
    row, document, said = shown()
    assert row == {"at": document["at"], "passed": True, "not_run": "", "replica": None}
    assert document["repository"] == job.repository and f", from {job.repository}" in said
    drilled(job, 2, savepoint=savepoint, repository=where, not_run="Its sink is foreachBatch.")
    drilled(job, 3, repository=job.repository)  # another savepoint
    row, document, said = shown()
    assert row["replica"] == document["repository"] == where and row["not_run"]
    at = document["at"][:19].replace("T", " ")
    assert f"savepoint proved, application not run {at}Z, from {where}" in said
    drilled(job, 4, savepoint=savepoint, repository=where, failed_step="compare")
    row, document, said = shown()
    assert row["passed"] is document["passed"] is False and "FAILED" in said


def test_so_many_drills_are_shown(folder: Path) -> None:
    job = declare(folder)
    for week in range(MOST + 2):
        drilled(job, week)
    assert len(recoveries_part(job, job.records())["drills"]) == MOST


def test_a_drill_that_did_not_run_the_application_says_so(folder: Path) -> None:
    job = declare(folder)
    drilled(job, 1)
    (ran,) = recoveries_part(job, job.records())["drills"]
    drilled(job, 2, not_run="Its sink is foreachBatch.", rto_s=None)
    (drill, _) = recoveries_part(job, job.records())["drills"]
    assert (ran["not_run"], drill["passed"], drill["not_run"]) == ("", True, "Its sink is foreachBatch.")
    assert snapshot(job, parts={"recoveries"}).line["drill"]["not_run"] == "Its sink is foreachBatch."
