"""`<job>.run`, `<job>.stop` and `<job>.upgrade`: a job from its start to its end, and its next code."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.core.verb_options import StartOptions, StopOptions, UpgradeOptions
from streambank.declaration.declaration import Job
from streambank_airflow.dags.common import DagFile
from streambank_airflow.dags.forms import daily, recovery
from streambank_airflow.dags.forms.fields import answers_of
from streambank_airflow.operators.job import (
    KeepStreamingJobRunningOperator,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
)
from streambank_airflow.operators.upgrade import UpgradeStreamingJobOperator


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
            **answers_of(StartOptions),
            wait_until_possible=True,
            **file.task_args(job),
        )
        # Without a time limit: it watches for as long as the job runs.
        keep = KeepStreamingJobRunningOperator(
            task_id="keep_running", execution_timeout=None, **file.task_args(job)
        )
        start >> keep
    return dag


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
        StopStreamingJobOperator(task_id="stop", **answers_of(StopOptions), **file.task_args(job))
    return dag


def upgrade_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.upgrade`.

    By hand only. The form takes no interpreter and no distribution of Spark: these are declared.
    """
    dag = file.dag(
        job,
        "upgrade",
        summary=(
            "Brings the running job to what is declared now. The new code is rehearsed on a copy of a fresh "
            "savepoint while the old code runs on. Then the job stops with a savepoint, and goes on with the "
            "new code. If that does not get on, the savepoint is restored, and the old code started."
        ),
        params=recovery.upgrade_form(job.drill.batches, job.upgrade.applications),
    )
    with dag:
        UpgradeStreamingJobOperator(
            task_id="upgrade",
            **answers_of(UpgradeOptions),
            from_form=True,
            **file.task_args(job),
        )
    return dag
