"""`<job>.restore`: show what a restore would do, ask a person, do it, and prove that the job goes on."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG

from streambank.job.declaration import Job
from streambank_airflow import forms
from streambank_airflow.dags.common import dag_id, job_dag, task_args
from streambank_airflow.deadlines import restore_deadline
from streambank_airflow.operators.hand_over import CheckRunDagOperator, JobWatchedOperator
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.restore import PLAN_KEY, RestoreSavepointOperator
from streambank_airflow.sensors.job import BatchCommittedSensor

SEVERAL = (
    " Restores one query: the others go on from where they are. Where more than one is lost, restore one "
    "after the other, and let only the last of these runs start the job."
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
            "waits for a person's approval; without an answer nothing happens." + (SEVERAL if queries else "")
        ),
        params=forms.restore_form(queries, job.restore.sink, job.restore.source),
        deadline=restore_deadline(job),
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
            if_running="{{ 'stop' if params.stop_running else 'refuse' }}",
            **choices,
        )
        approve = ApprovalOperator(
            task_id="approve",
            subject=f"Restore {job.name}?",
            body=f"{{{{ ti.xcom_pull(task_ids='plan', key='{PLAN_KEY}') }}}}",
            defaults=ApprovalOperator.REJECT,
            response_timeout=timedelta(seconds=job.restore.approval_timeout_s),
        )
        stop = StopStreamingJobOperator(
            task_id="stop",
            if_running="{{ 'stop' if params.stop_running else 'refuse' }}",
            **args,
        )
        restore = RestoreSavepointOperator(
            task_id="restore",
            savepoint="{{ ti.xcom_pull(task_ids='plan')['savepoint'] }}",
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
        )
        keep_running = TriggerDagRunOperator(
            task_id="keep_running",
            trigger_dag_id=run,
            conf={"note": "handed over after a restore"},
        )
        watched = JobWatchedOperator(
            task_id="watched",
            run_dag_id=run,
            after="{{ (ti.xcom_pull(task_ids='check_run') or {}).get('watch') }}",
            **args,
        )
        [check_run, plan] >> approve >> stop >> restore >> start >> first_batch >> keep_running >> watched
    return dag
