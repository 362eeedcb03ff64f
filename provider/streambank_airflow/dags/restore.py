"""`<job>.restore`: show what a restore would do, ask a person, do it, and prove that the job goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseOperator, chain

from streambank.declaration.declaration import Job
from streambank.recovery.approval import CHOICE_KEY
from streambank_airflow.arguments import Jinja
from streambank_airflow.choices import restore_repositories
from streambank_airflow.dags.common import DagFile, approve_task, dag_id, left_by
from streambank_airflow.dags.forms import recovery
from streambank_airflow.notify.deadlines import restore_deadline
from streambank_airflow.operators.approve import CHOICES_KEY, ApprovePlanOperator
from streambank_airflow.operators.base import GENERATIONS_KEY
from streambank_airflow.operators.hand_over import CheckRunDagOperator, JobWatchedOperator
from streambank_airflow.operators.job import StartStreamingJobOperator, StopStreamingJobOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator

SEVERAL = (
    " Restores all queries as one, to savepoints that belong together; the approval is of all of them. Or "
    "restores one query: then the others go on from where they are."
)


def restore_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.restore`.

    `stop` comes before the restore even where nothing runs: it records that the job is meant to be stopped,
    so that `<job>.run` does not start it again in the middle. `keep_running` hands the job back to
    `<job>.run`, which must not be paused (`check_run`, before anything is done), and `watched` waits for the
    proof that it was taken over. Of several queries all are restored as one, or one of them.
    """
    queries = [query for query in job.query_names if query is not None]
    places = restore_repositories(job)
    dag = file.dag(
        job,
        "restore",
        summary=(
            "Restores a savepoint into a new generation of the job's checkpoint. Shows its plan first and "
            "waits for a person's approval; without an answer nothing happens. If the job runs, or rows were "
            "written after the savepoint, the approval offers ways to handle that. Or restores a fork into a "
            "directory, beside the running job." + (SEVERAL if queries else "")
        ),
        params=recovery.restore_form(queries, job.restore, places),
        deadline=restore_deadline(job, file.declared_by(job), file.connection_of(job)),
    )
    query = "/{{ params.query }}" if queries else ""
    with dag:
        restore_tasks(
            job,
            {**file.task_args(job), "job": f"{job.name}{query}"},
            savepoint="{{ params.savepoint }}",
            how={
                "sink": "{{ params.sink }}",
                "source": "{{ params.source }}",
                "mode": "{{ params.mode }}",
                "sink_of": "{{ params.sink_of }}",
                "new_sinks": "{{ params.new_sinks }}",
                "from_form": True,
                "repository": "{{ params.repository }}" if len(places) > 1 else None,
            },
            stop="params.stop_running",
            start="params.start",
            into="params.into",
        )
    return dag


def restore_tasks(
    job: Job,
    args: Mapping[str, Any],
    *,
    savepoint: str,
    how: Mapping[str, Any],
    stop: str,
    start: str,
    approve: bool = True,
    into: str | None = None,
) -> None:
    """Plan, ask, stop, restore, start and hand over, in the DAG or task group that is open.

    A restore into a directory is a separate task: the job is neither stopped nor started for it.

    Args:
        args: What every task gets: where the job is (`job` may name a query), and why it is done.
        how: `repository`, `sink`, `sink_of`, `source`, `mode`, `new_sinks` and `from_form` of the
            operators that plan and restore.
        stop: Whether a job that runs is stopped without a question: an expression in a template.
        start: Whether the job is started afterwards and handed to `<job>.run`: an expression, too.
        approve: Ask a person; without that, the plan fails for what somebody would have to decide.
        into: The directory, or nothing for the job's next generation: an expression, too; None where that is
            never asked.
    """
    of_job = {**args, "job": job.name}
    without_note = {name: value for name, value in args.items() if name != "note"}
    run, in_place = dag_id(job.name, "run"), f"not {into}" if into else "true"
    started = f"{{{{ {start} and {in_place} }}}}"
    check_run = CheckRunDagOperator(task_id="check_run", run_dag_id=run, only_if=started, **of_job)
    plan = RestoreSavepointOperator(
        task_id="plan",
        savepoint=savepoint,
        plan_only=True,
        offer=approve,
        if_running=Jinja(f"{{{{ 'stop' if {stop} else 'refuse' }}}}"),
        into=f"{{{{ {into} }}}}" if into else None,
        **how,
        **args,
    )
    approved = None
    asked: list[ApprovePlanOperator] = []
    if approve:
        place = {**without_note, "job": job.name}
        asked = [approve_task(job.restore, plan, choices=left_by(plan, CHOICES_KEY), **place)]
        # None where the task was marked as a success by hand.
        chosen = f"ti.xcom_pull(task_ids='{asked[0].task_id}', key='{CHOICE_KEY}')"
        approved, stop = f"{{{{ {chosen} }}}}", f"{stop} or ({chosen} or {{}}).get('stop')"
    shown = f"ti.xcom_pull(task_ids='{plan.task_id}')"
    planned: dict[str, Any] = {
        "savepoint": f"{{{{ {shown}['savepoint'] }}}}",
        "skipped": f"{{{{ {shown}.get('skipped') }}}}",  # None in what an older version has planned
        "approved": approved,
        "shown": left_by(plan, GENERATIONS_KEY),
        **how,
        **args,
    }
    restore = RestoreSavepointOperator(task_id="restore", only_if=f"{{{{ {in_place} }}}}", **planned)
    stopped = StopStreamingJobOperator(
        task_id="stop",
        if_running=Jinja(f"{{{{ 'stop' if {stop} else 'refuse' }}}}"),
        only_if=f"{{{{ {in_place} }}}}",
        only_before=restore.task_id,
        shown=left_by(plan, GENERATIONS_KEY),
        **of_job,
    )
    start_job = StartStreamingJobOperator(
        task_id="start", only_if=started, if_stopped="fail", wait_until_possible=True, **of_job
    )
    keep_running = TriggerDagRunOperator(
        task_id="keep_running", trigger_dag_id=run, conf={"note": "handed over after a restore"}
    )
    watched = JobWatchedOperator(task_id="watched", run_dag_id=run, deferrable=True, **of_job)
    chain(check_run, *asked, stopped, restore, start_job, keep_running, watched)
    plan >> (asked[0] if asked else stopped)
    if into:
        beside = RestoreSavepointOperator(
            task_id="restore_into",
            into=f"{{{{ {into} }}}}",
            only_if=f"{{{{ not ({in_place}) }}}}",
            **planned,
        )
        before: list[BaseOperator] = [*asked] or [check_run, plan]
        before >> beside
