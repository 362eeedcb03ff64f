"""`<job>.stop`: stop the job at a batch boundary, with a savepoint if wanted."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.declaration.declaration import Job
from streambank_airflow.dags.common import DagFile
from streambank_airflow.dags.forms import daily
from streambank_airflow.operators.job import StopStreamingJobOperator


def stop_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.stop`."""
    dag = file.dag(
        job,
        "stop",
        summary=(
            "Stops the job after its current batch, and keeps it stopped until `run` is triggered again."
        ),
        params=daily.stop_form(job.stop.force_after_s),
    )
    with dag:
        StopStreamingJobOperator(
            task_id="stop",
            savepoint="{{ params.savepoint }}",
            drain="{{ params.drain }}",
            force_after_s="{{ params.force_after_s }}",
            **file.task_args(job),
        )
    return dag
