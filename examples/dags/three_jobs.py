"""Save and verify three jobs each night by one mapped group: an instance for each, side by side.

One that fails does not hold up the others. The list may as well be the output of a task.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, task_group

from streambank_airflow.operators import CreateSavepointOperator, VerifySavepointOperator

JOBS = ["flights", "delays", "sessions"]

with DAG(
    "three_jobs",
    schedule="0 1 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # three days at once would be three savepoints of this very moment
    max_active_runs=1,
    tags={"streambank", "example"},
    doc_md=__doc__,
):

    @task_group
    def save(job: str) -> None:
        """One of them."""
        take = CreateSavepointOperator(
            task_id="take",
            job=job,
            name="night-{{ ts_nodash }}",  # a name begins with a letter
            skip_if_never_started=True,
        )
        VerifySavepointOperator(task_id="verify", job=job, savepoint=take.output["savepoint"], level="full")

    save.expand(job=JOBS)
