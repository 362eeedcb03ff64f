"""Keep the streaming jobs of a table running and saved: a row is a job, and a new row a new one.

No jobs file declares them. The task `declared` reads the table of a database that the connection `jobs_table`
names, and each row becomes an instance of a mapped group: one that fails does not hold up the others. A job
that is running already is left as it is, and one that somebody has stopped stays stopped.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, BaseHook, task, task_group

from streambank_airflow.operators import CreateSavepointOperator, StartStreamingJobOperator

LAKE = "/var/lib/lake"

with DAG(
    "jobs_from_table",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags={"streambank", "example"},
    doc_md=__doc__,
):

    @task
    def declared() -> list[dict[str, Any]]:
        """A job and its declaration for each row."""
        import sqlite3  # in its place: the hook of your database
        from contextlib import closing

        with closing(sqlite3.connect(BaseHook.get_connection("jobs_table").host or "")) as table:
            rows = table.execute("SELECT name, application, topic FROM jobs").fetchall()
        return [{"job": name, "declaration": declare(name, *more)} for name, *more in rows]

    def declare(name: str, application: str, topic: str) -> dict[str, Any]:
        """The fields of a jobs file, without secrets: those come from the environment of the driver."""
        return {
            "name": name,
            "application": f"/opt/jobs/{application}",
            "args": ["--topic", topic],
            "checkpoint": f"{LAKE}/checkpoints/{name}",
            "repository": f"{LAKE}/savepoints",
            "master": "local[2]",
        }

    @task_group
    def keep(job: str, declaration: dict[str, Any]) -> None:
        """One of them."""
        start = StartStreamingJobOperator(task_id="start", job=job, declaration=declaration)
        take = CreateSavepointOperator(
            task_id="take", job=job, declaration=declaration, skip_if_never_started=True
        )
        start >> take

    keep.expand_kwargs(declared())
