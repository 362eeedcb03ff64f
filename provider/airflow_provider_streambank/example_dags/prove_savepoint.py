"""Prove that the newest savepoint of the job `flights` restores, beside the job, which goes on.

Give the DAG a schedule such as `@daily` for a proof each night. `mode="fork"` makes the restored checkpoint
that of its own query: the job's checkpoint, lease and records are not touched. The directory that is
restored into is removed in the end, unless the proof has failed.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, task

from streambank_airflow.operators import RestoreSavepointOperator, VerifySavepointOperator

with DAG(
    "streambank_prove_savepoint",
    schedule=None,
    params={
        "directory": Param(
            "/var/lib/streambank/proof",
            type="string",
            title="Directory",
            description_md="Where the savepoint is restored: empty, or not there yet.",
        )
    },
    tags={"streambank", "example"},
    doc_md=__doc__,
):
    verify = VerifySavepointOperator(task_id="verify", job="flights", savepoint="latest", level="full")
    restore = RestoreSavepointOperator(
        task_id="restore",
        job="flights",
        savepoint=verify.output["savepoint"],
        into="{{ params.directory }}",
        mode="fork",
        sink="accept",  # output written after the savepoint stays as it is
        source="accept",  # nothing is read from the sources
    )

    @task
    def clean_up(directory: str) -> None:
        """Remove what was restored."""
        from shutil import rmtree

        rmtree(directory)

    restore >> clean_up("{{ params.directory }}")
