"""`<job>.savepoint`: take a savepoint and verify it, on a schedule and by hand."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.job.declaration import Job
from streambank_airflow import forms
from streambank_airflow.dags.common import job_dag, task_args
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator

ONE = "Takes a savepoint of the running job, without stopping it, and verifies it."
SEVERAL = (
    "Takes a savepoint of each query of the running job ({}), without stopping it, and verifies it. Each is "
    "whole by itself, but they are not mutually consistent: no two are of the same moment."
)


def savepoint_dag(job: Job, jobs_file: str) -> DAG:
    """Build `<job>.savepoint`: one pair of tasks for each query of the job."""
    queries = [query for query in job.query_names if query is not None]
    dag = job_dag(
        job,
        "savepoint",
        summary=SEVERAL.format(", ".join(queries)) if queries else ONE,
        params=forms.savepoint_form(job.savepoint.verify, queries),
        schedule=job.savepoint.schedule,
    )
    with dag:
        for query in job.query_names:
            _take_and_verify(job, query, jobs_file)
    return dag


def _take_and_verify(job: Job, query: str | None, jobs_file: str) -> None:
    suffix = f"_{query}" if query else ""
    args = {**task_args(job, jobs_file), "job": job.savepoint_name(query)}
    take = CreateSavepointOperator(
        task_id=f"take{suffix}",
        batch=f"{{{{ params['{forms.batch_field(query)}'] }}}}",
        closure=job.savepoint.closure,
        pin="{{ params.pin }}",
        skip_if_never_started=True,
        **args,
    )
    verify = VerifySavepointOperator(
        task_id=f"verify{suffix}",
        savepoint=f"{{{{ ti.xcom_pull(task_ids='{take.task_id}')['savepoint'] }}}}",
        level="{{ params.verify }}",
        **args,
    )
    take >> verify
