"""`<job>.compact`, `.rescale`, `.transform`, `.bootstrap`: exchange a job's state for one made of it.

Each shows what would become of the state, asks a person, and does it as one procedure
(streambank/recovery/exchange_state.py). Only a job that was stopped before is handed over to `<job>.run`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param, TriggerRule

from streambank.declaration.declaration import Job
from streambank.declaration.state import BootstrapPolicy, TransformPolicy
from streambank_airflow.dags.common import DagFile, approve_task, dag_id, left_by
from streambank_airflow.dags.forms import rewrite
from streambank_airflow.operators.base import GENERATIONS_KEY
from streambank_airflow.operators.hand_over import CheckRunDagOperator, JobWatchedOperator
from streambank_airflow.operators.rewrite import (
    NOTHING_KEY,
    REQUEST_KEY,
    BootstrapStateOperator,
    CompactStateOperator,
    RescaleStateOperator,
    StateOperator,
    TransformStateOperator,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

AS_IT_WAS = (
    " Shows first what that means, and waits for a person's approval{}; without an answer nothing happens. "
    "The current checkpoint is not changed: if a step fails, the job goes on from it with its old state, "
    "and the run fails."
)
BY_HAND = "dag_run.run_type != 'scheduled'"
NOTHING = f"ti.xcom_pull(task_ids='preview', key='{NOTHING_KEY}')"


def compact_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.compact`."""
    queries = [query for query in job.query_names if query is not None]
    return _exchange_dag(
        job,
        file,
        "compact",
        "Stops the job with a savepoint, removes expired keys, and starts it with the rest.",
        rewrite.compact_form(queries, job.compact),
        CompactStateOperator,
        _answers(rewrite.COMPACT_FIELDS),
        schedule=job.compact.schedule,
        always_ask=job.compact.approve or job.compact.schedule is None,
    )


def rescale_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.rescale`."""
    queries = [query for query in job.query_names if query is not None]
    return _exchange_dag(
        job,
        file,
        "rescale",
        "Stops the job with a savepoint, spreads its state over another number of partitions, and starts it.",
        rewrite.rescale_form(queries),
        RescaleStateOperator,
        {"partitions": "{{ params.partitions }}"},
    )


def transform_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.transform`, for a job that declares it."""
    declared = job.changes.transform or TransformPolicy()
    return _exchange_dag(
        job,
        file,
        "transform",
        "Stops the job with a savepoint, sets columns of its state to other values or deletes keys, and "
        "starts it with that state.",
        rewrite.transform_form([query for query in job.query_names if query is not None], declared),
        TransformStateOperator,
        {**_answers(rewrite.TRANSFORM_FIELDS), "samples": declared.samples},
    )


def bootstrap_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.bootstrap`, for a job that declares it."""
    declared = job.changes.bootstrap or BootstrapPolicy(())
    return _exchange_dag(
        job,
        file,
        "bootstrap",
        "Stops the job with a savepoint, makes its state from a table, and starts it with that state.",
        rewrite.bootstrap_form([query for query in job.query_names if query is not None], declared),
        BootstrapStateOperator,
        {**_answers(rewrite.BOOTSTRAP_FIELDS), "samples": declared.samples},
    )


def _answers(fields: Sequence[str]) -> dict[str, Any]:
    """Templates for what a form says. A trigger by REST may name a field that the form does not have."""
    return {**{name: f"{{{{ params.get('{name}') }}}}" for name in fields}, "from_form": True}


def _exchange_dag(
    job: Job,
    file: DagFile,
    verb: str,
    summary: str,
    form: Mapping[str, Param],
    operator: type[StateOperator],
    asked: Mapping[str, Any],
    schedule: str | None = None,
    always_ask: bool = True,
) -> DAG:
    unasked = "" if always_ask else ", unless its schedule has started it"
    dag = file.dag(job, verb, summary=summary + AS_IT_WAS.format(unasked), params=form, schedule=schedule)
    asks = "true" if always_ask else BY_HAND
    args = file.task_args(job)
    several = "query" in form
    of_query = {**args, "job": f"{job.name}/{{{{ params.query }}}}" if several else job.name}
    goes_on = f"{{{{ not params.dry_run and not {NOTHING} }}}}"
    with dag:
        check_run = CheckRunDagOperator(
            task_id="check_run",
            run_dag_id=dag_id(job.name, "run"),
            only_if="{{ params.start and not params.dry_run }}",
            **args,
        )
        preview = operator(
            task_id="preview",
            only_if=f"{{{{ params.dry_run or {asks} }}}}",
            plan_only=True,
            before_stop=True,
            **asked,
            **of_query,
        )
        # Of a run that asks nobody the preview is skipped, and so is this.
        where = {**file.job_args(job), "job": of_query["job"]}
        approve = approve_task(job.restore, preview, only_if=goes_on, **where)
        exchange = operator(
            task_id="exchange",
            exchange=True,
            start="{{ params.start }}",
            only_if=goes_on,
            planned=left_by(preview, REQUEST_KEY),
            shown=left_by(preview, GENERATIONS_KEY),
            trigger_rule=TriggerRule.NONE_FAILED,
            **asked,
            **of_query,
        )
        keep_running = TriggerDagRunOperator(
            task_id="keep_running",
            trigger_dag_id=dag_id(job.name, "run"),
            conf={"note": f"handed over after {verb}"},
            pre_execute=_unless_it_ran,
        )
        watched = JobWatchedOperator(
            task_id="watched", run_dag_id=dag_id(job.name, "run"), deferrable=True, **args
        )
        [check_run, preview] >> approve >> exchange >> keep_running >> watched
    return dag


def _unless_it_ran(context: Context) -> None:
    """Hand over only a job that the exchange has started: who kept one running that ran goes on with that."""
    if not context["ti"].xcom_pull(task_ids="exchange", key="started"):
        raise AirflowSkipException("Nothing is handed over: the job was not started by this run.")
