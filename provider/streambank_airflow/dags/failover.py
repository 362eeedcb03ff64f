"""`<job>.failover`: let a job with a standby go on at its other site, and hand it to `<job>.run` there."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseOperator, chain

from streambank.core.verb_options import FailoverOptions
from streambank.declaration.declaration import Job
from streambank_airflow.dags.common import DagFile, approve_task, dag_id
from streambank_airflow.dags.forms import recovery
from streambank_airflow.dags.forms.fields import answers_of
from streambank_airflow.operators.failover import FailoverStreamingJobOperator
from streambank_airflow.operators.hand_over import CheckRunDagOperator, JobWatchedOperator


def failover_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.failover`.

    `plan` fails for what may lose or repeat rows unless the form says otherwise, and for a site that does not
    answer unless a person says that it is down. `approve` shows the rest, unless `standby.approve` is off;
    what is done then is no more than that. The run of `<job>.run` that watched the job ends by the stop;
    `keep_running` hands the job to another one.
    """
    dag = file.dag(
        job,
        "failover",
        summary=(
            "Lets the job go on at its other site: stops it where it is active with a last savepoint, "
            "restores that at the other site, starts it there and waits for a batch. Shows first what may be "
            "lost, and waits for a person's approval. Reports how long it took (RTO) and what was lost "
            "(RPO). A run that was interrupted is finished by the next one. The way back is the same DAG."
        ),
        params=recovery.failover_form(job.restore.sink, job.restore.source),
    )
    args, run = file.task_args(job), dag_id(job.name, "run")
    with dag:
        check_run = CheckRunDagOperator(task_id="check_run", run_dag_id=run, **args)
        how: dict[str, Any] = {
            **answers_of(FailoverOptions),
            **args,
        }
        asked: list[BaseOperator] = []
        approved = None
        if job.standby is None or job.standby.approve:
            plan = FailoverStreamingJobOperator(task_id="plan", plan_only=True, **how)
            where = {name: value for name, value in args.items() if name != "note"}
            asked = [plan, approve_task(job.restore, plan, **where)]
            approved = f"{{{{ ti.xcom_pull(task_ids='{plan.task_id}')['approval'] }}}}"
        failover = FailoverStreamingJobOperator(task_id="failover", approved=approved, **how)
        keep_running = TriggerDagRunOperator(
            task_id="keep_running", trigger_dag_id=run, conf={"note": "handed over after a fail-over"}
        )
        watched = JobWatchedOperator(task_id="watched", run_dag_id=run, deferrable=True, **args)
        chain(check_run, *asked, failover, keep_running, watched)
    return dag
