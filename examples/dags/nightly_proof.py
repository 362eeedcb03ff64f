"""Prove each night that the newest savepoint of the job `flights` restores, beside the job, which goes on.

A savepoint that nobody has restored is a hope. `mode="fork"` makes the restored checkpoint that of a query of
its own: the job's checkpoint, lease and records are not touched. The directory is removed in the end, and
stays for a look if the proof has failed. `drill` goes further: it runs the application on the copy, too.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, task

from streambank_airflow.operators import RestoreSavepointOperator, VerifySavepointOperator

JOB = "flights"

with DAG(
    "nightly_proof",
    schedule="@daily",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run for a day of last week would prove the newest savepoint of today again
    max_active_runs=1,
    params={"directory": Param("/var/lib/streambank/proofs", type="string", title="Directory")},
    tags={"streambank", "example"},
    doc_md=__doc__,
):
    verify = VerifySavepointOperator(task_id="verify", job=JOB, savepoint="latest", level="full")
    restore = RestoreSavepointOperator(
        task_id="restore",
        job=JOB,
        savepoint=verify.output["savepoint"],  # the one that was verified, whatever is taken meanwhile
        into="{{ params.directory }}/{{ ts_nodash }}/checkpoint",  # beside it goes a note of the restore
        mode="fork",
        sink="accept",  # output written after the savepoint stays as it is
        source="accept",  # nothing is read from the sources
    )

    @task
    def clean_up(location: str) -> None:
        """Remove what was restored."""
        from pathlib import Path
        from shutil import rmtree

        rmtree(Path(location.removeprefix("file://")).parent)

    clean_up(restore.output["location"])
