"""`<job>.run`: start the job and keep it running for as long as it is meant to run."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.declaration.declaration import Job
from streambank_airflow.dags.common import DagFile
from streambank_airflow.dags.forms import daily
from streambank_airflow.operators.job import KeepStreamingJobRunningOperator, StartStreamingJobOperator


def run_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.run`.

    Several runs may be active: each only watches what the first has started. One at a time would be a trap,
    since a second click would wait in the queue for days and then restart what somebody has stopped.
    """
    dag = file.dag(
        job,
        "run",
        summary=(
            "Starts the job, if it does not run yet, and keeps it running until somebody stops it. "
            "A driver that dies or makes no progress is replaced, from its checkpoint."
        ),
        params=daily.run_form(),
        schedule=job.start.schedule,
        one_at_a_time=False,
    )
    with dag:
        start = StartStreamingJobOperator(
            task_id="start",
            fresh_start="{{ params.fresh_start }}",
            wait_until_possible=True,
            **file.task_args(job),
        )
        # Without a time limit: it watches for as long as the job runs.
        keep = KeepStreamingJobRunningOperator(
            task_id="keep_running", execution_timeout=None, **file.task_args(job)
        )
        start >> keep
    return dag
