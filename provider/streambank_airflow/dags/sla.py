"""`<job>.sla`: judge what the job promises, tell what is news, and fail where something is broken."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.job.declaration import Job
from streambank_airflow import forms
from streambank_airflow.dags.common import job_dag
from streambank_airflow.operators.sla import CheckSlaOperator


def sla_dag(job: Job, jobs_file: str) -> DAG:
    """Build `<job>.sla`."""
    dag = job_dag(
        job,
        "sla",
        summary=(
            "Judges what the job promises. Those that are declared in `notify` are told once when something "
            "breaks and once when it has healed, not with every run."
        ),
        params=forms.sla_form(),
        schedule=job.sla.schedule,
    )
    with dag:
        CheckSlaOperator(
            task_id="check",
            job=job.name,
            jobs_file=jobs_file,
            on_breach="{{ params.on_breach }}",
            tell="{{ params.tell }}",
            skew="{{ params.skew }}",
        )
    return dag
