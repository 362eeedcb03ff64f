"""`<job>.restore`: show what a restore would do, ask a person, do it, and prove that the job goes on."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG

from streambank.declaration.declaration import Job
from streambank.recovery.approval import CHOICE_KEY
from streambank_airflow.dags import forms
from streambank_airflow.dags.common import dag_id, job_dag, task_args
from streambank_airflow.notify.deadlines import restore_deadline
from streambank_airflow.operators.base import alert_of_failure
from streambank_airflow.operators.hand_over import CheckRunDagOperator, JobWatchedOperator
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.restore import (
    CHOICES_KEY,
    PLAN_KEY,
    SUBJECT_KEY,
    ApproveRestoreOperator,
    RestoreSavepointOperator,
)
from streambank_airflow.sensors.job import BatchCommittedSensor

CHOSEN = f"ti.xcom_pull(task_ids='approve', key='{CHOICE_KEY}')"
"""In templates: what the person chose; None where `approve` was marked as a success by hand."""
SEVERAL = (
    " Restores one query: the others go on from where they are. If several are lost, restore one after the "
    "other, and let only the last run start the job."
)


def restore_dag(job: Job, jobs_file: str) -> DAG:
    """Build `<job>.restore`.

    `stop` comes before the restore even where nothing runs: it records that the job is meant to be stopped,
    so that `<job>.run` does not start it again in the middle. `keep_running` hands the job back to
    `<job>.run`, which must not be paused (`check_run`, before anything is done), and `watched` waits for the
    proof that it was taken over. Of several queries one is restored; where more are lost, all but the last
    are restored without a start.
    """
    queries = [query for query in job.query_names if query is not None]
    dag = job_dag(
        job,
        "restore",
        summary=(
            "Restores a savepoint into a new generation of the job's checkpoint. Shows its plan first and "
            "waits for a person's approval; without an answer nothing happens. If the job runs, or rows were "
            "written after the savepoint, the approval offers ways to handle that."
            + (SEVERAL if queries else "")
        ),
        params=forms.restore_form(queries, job.restore.sink, job.restore.source),
        deadline=restore_deadline(job, jobs_file),
    )
    args = task_args(job, jobs_file)
    query = "/{{ params.query }}" if queries else ""
    choices = {
        **args,
        "job": f"{job.name}{query}",
        "sink": "{{ params.sink }}",
        "source": "{{ params.source }}",
        "mode": "{{ params.mode }}",
        "new_sinks": "{{ params.new_sinks }}",
    }
    run = dag_id(job.name, "run")
    with dag:
        check_run = CheckRunDagOperator(
            task_id="check_run", run_dag_id=run, only_if="{{ params.start }}", **args
        )
        plan = RestoreSavepointOperator(
            task_id="plan",
            savepoint="{{ params.savepoint }}",
            plan_only=True,
            offer=True,
            if_running="{{ 'stop' if params.stop_running else 'refuse' }}",
            **choices,
        )
        approve = ApproveRestoreOperator(
            task_id="approve",
            job=choices["job"],
            jobs_file=jobs_file,
            subject=of_plan(SUBJECT_KEY),
            body=of_plan(PLAN_KEY),
            choices=of_plan(CHOICES_KEY),
            defaults=ApproveRestoreOperator.REJECT,
            assigned_users=[{"id": one, "name": one} for one in job.restore.approvers] or None,
            response_timeout=timedelta(seconds=job.restore.approval_timeout_s),
        )
        stop = StopStreamingJobOperator(
            task_id="stop",
            if_running=(
                f"{{{{ 'stop' if params.stop_running or ({CHOSEN} or {{}}).get('stop') else 'refuse' }}}}"
            ),
            only_before="restore",
            **args,
        )
        restore = RestoreSavepointOperator(
            task_id="restore",
            savepoint="{{ ti.xcom_pull(task_ids='plan')['savepoint'] }}",
            approved=f"{{{{ {CHOSEN} }}}}",
            **choices,
        )
        start = StartStreamingJobOperator(task_id="start", only_if="{{ params.start }}", **args)
        first_batch = BatchCommittedSensor(
            task_id="first_batch",
            job=choices["job"],
            jobs_file=jobs_file,
            after_batch="{{ ti.xcom_pull(task_ids='restore')['batch'] }}",
            accept_idle=True,
            poke_interval=2,
            timeout=timedelta(minutes=30),
            on_failure_callback=alert_of_failure,
        )
        keep_running = TriggerDagRunOperator(
            task_id="keep_running",
            trigger_dag_id=run,
            conf={"note": "handed over after a restore"},
        )
        watched = JobWatchedOperator(task_id="watched", run_dag_id=run, deferrable=True, **args)
        [check_run, plan] >> approve >> stop >> restore >> start >> first_batch >> keep_running >> watched
    return dag


def of_plan(key: str) -> str:
    """A template for what the plan has left under a key."""
    return f"{{{{ ti.xcom_pull(task_ids='plan', key='{key}') }}}}"
