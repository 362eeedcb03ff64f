"""`<job>.compact`, `.rescale`, `.transform`, `.bootstrap`: exchange a job's state for one made of it.

All are one dance: show what would become of the state, ask a person, stop with a savepoint, make another one
of it, restore that as the next generation, start, watch, hand over. The earlier generation stays untouched,
and where a step fails the job goes on in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param, TriggerRule

from streambank.core.state_options import ExpireKeysOptions
from streambank.declaration.declaration import Job
from streambank.declaration.state import BootstrapPolicy, TransformPolicy
from streambank_airflow.dags.common import DagFile, approve_task, dag_id, left_by
from streambank_airflow.dags.forms import rewrite
from streambank_airflow.dags.forms.fields import answers_of
from streambank_airflow.operators.base import GENERATIONS_KEY
from streambank_airflow.operators.hand_over import CheckRunDagOperator, JobWatchedOperator
from streambank_airflow.operators.job import (
    SAVEPOINTS_KEY,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
)
from streambank_airflow.operators.restore import ReinstateGenerationOperator, RestoreSavepointOperator
from streambank_airflow.operators.rewrite import (
    NOTHING_KEY,
    REQUEST_KEY,
    BootstrapStateOperator,
    CompactStateOperator,
    RescaleStateOperator,
    StateOperator,
    TransformStateOperator,
)

AS_IT_WAS = (
    " Shows first what that means, and waits for a person's approval{}; without an answer nothing happens. "
    "The current checkpoint is not changed: if a step fails, the job goes on from it with its old state, "
    "and the run fails."
)
TRANSFORM_FIELDS = ("sets", "where", "delete_where", "operator", "part", "rehearse")
BOOTSTRAP_FIELDS = ("table", "existing", "keys", "values", "sql", "operator", "part", "rehearse")
"""The fields of `<job>.bootstrap` that say what is made, and `sql`, which the form does not have."""
BY_HAND = "dag_run.run_type != 'scheduled'"
NOTHING = f"ti.xcom_pull(task_ids='preview', key='{NOTHING_KEY}')"
PREVIEWED = "ti.xcom_pull(task_ids='preview')"
REWRITTEN = "ti.xcom_pull(task_ids='rewrite')"


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
        _answers("where", **answers_of(ExpireKeysOptions)),
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
        {
            **_answers(*TRANSFORM_FIELDS),
            "samples": declared.samples,
        },
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
        {**_answers(*BOOTSTRAP_FIELDS), "samples": declared.samples},
        planned={"planned_table": f"{{{{ ({PREVIEWED} or {{}}).get('table_digest') }}}}"},
        checks_again=True,
    )


def _answers(*names: str, **more: Any) -> dict[str, Any]:
    """Templates for what a form says. A trigger by REST may name a field that the form does not have."""
    return {**{name: f"{{{{ params.get('{name}') }}}}" for name in names}, **more, "from_form": True}


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
    planned: Mapping[str, Any] | None = None,
    checks_again: bool = False,
) -> DAG:
    unasked = "" if always_ask else ", unless its schedule has started it"
    dag = file.dag(job, verb, summary=summary + AS_IT_WAS.format(unasked), params=form, schedule=schedule)
    asks = "true" if always_ask else BY_HAND
    goes_on = f"{{{{ not params.dry_run and not {NOTHING} }}}}"
    args = file.task_args(job)
    several = "query" in form
    of_query = {**args, "job": f"{job.name}/{{{{ params.query }}}}" if several else job.name}
    where = {**file.job_args(job), "job": of_query["job"]}
    stopped = f"ti.xcom_pull(task_ids='stop', key='{SAVEPOINTS_KEY}')"
    savepoint = f"({stopped} or {{}}).get({'params.query' if several else repr('main')})"
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
        approve = approve_task(job.restore, preview, only_if=goes_on, **where)
        generations = left_by(preview, GENERATIONS_KEY)
        stop = StopStreamingJobOperator(
            task_id="stop",
            savepoint=True,
            shown=generations,
            only_if=goes_on,
            skip_if_stopped="{{ dag_run.run_type == 'scheduled' }}",
            trigger_rule=TriggerRule.NONE_FAILED,
            **args,
        )
        shown = {
            "planned": f"{{{{ ti.xcom_pull(task_ids='preview', key='{REQUEST_KEY}') }}}}",
            "shown": generations,
            **asked,
            **(planned or {}),
            **of_query,
        }
        rewrite = operator(task_id="rewrite", savepoint=f"{{{{ {savepoint} }}}}", unmoved=True, **shown)
        restore = RestoreSavepointOperator(
            task_id="restore",
            savepoint=f"{{{{ {REWRITTEN}['savepoint'] }}}}",
            only_if=f"{{{{ {REWRITTEN}['savepoint'] is not none }}}}",
            unmoved=True,
            shown=generations,
            **of_query,
        )
        start = StartStreamingJobOperator(
            task_id="start",
            only_if="{{ params.start }}",
            if_stopped="fail",
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            **args,
        )
        keep_running = _keep_running(job, "keep_running", f"handed over after {verb}")
        watched = _watched("watched", job, args)
        go_back = ReinstateGenerationOperator(
            task_id="go_back",
            generation=f"{{{{ ({REWRITTEN} or {{}}).get('generation') }}}}",
            savepoint=f"{{{{ {savepoint} }}}}",
            start="{{ params.start }}",
            only_after_stop=True,
            trigger_rule=TriggerRule.ONE_FAILED,
            **of_query,
        )
        start_again = StartStreamingJobOperator(
            task_id="start_again", only_if="{{ params.start }}", if_stopped="fail", **args
        )
        keep_running_again = _keep_running(job, "keep_running_again", f"{verb} failed: the job is as it was")
        watched_again = _watched("watched_again", job, args)
        [check_run, preview] >> approve
        if checks_again:  # by the savepoint of the plan: what changed since is refused while the job runs
            check = operator(
                task_id="check_table",
                savepoint=f"{{{{ ({PREVIEWED} or {{}}).get('of') }}}}",
                plan_only=True,
                only_if=goes_on,
                **shown,
            )
            approve >> check >> stop
        else:
            approve >> stop
        stop >> rewrite >> restore >> start >> keep_running >> watched
        rewrite >> start
        [stop, rewrite, restore, start] >> go_back >> start_again
        start_again >> keep_running_again >> watched_again
    return dag


def _keep_running(job: Job, task_id: str, note: str) -> TriggerDagRunOperator:
    return TriggerDagRunOperator(task_id=task_id, trigger_dag_id=dag_id(job.name, "run"), conf={"note": note})


def _watched(task_id: str, job: Job, args: Mapping[str, Any]) -> JobWatchedOperator:
    return JobWatchedOperator(task_id=task_id, run_dag_id=dag_id(job.name, "run"), deferrable=True, **args)
