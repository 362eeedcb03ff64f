"""`streambank.maintenance`: what keeps a repository whole, once for all jobs of a file."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, TriggerRule

from streambank.declaration.declaration import Declarations
from streambank.declaration.maintenance import MaintenancePolicy
from streambank_airflow.configuration import TAG
from streambank_airflow.dag_names import MAINTENANCE
from streambank_airflow.dags.common import ALLOWED_RUNS, CLOCKS, DagFile, by_clock
from streambank_airflow.operators.compact import CleanJobOperator
from streambank_airflow.operators.repository import (
    CheckReplicasOperator,
    RepairSavepointsOperator,
    SweepRepositoryOperator,
)
from streambank_airflow.operators.savepoint import VerifySavepointOperator

SUMMARY = (
    "Keeps the repository whole, for all of its jobs: reads and compares a share of what is stored, copies "
    "what is damaged from the replicas, deletes what no savepoint needs, and fails where a replica lacks "
    "savepoints. It also removes what work on a job has left, where the job declares generations."
)


def maintenance_dag(declared: Declarations, policy: MaintenancePolicy, file: DagFile) -> DAG:
    """Build the DAG of a repository.

    Of each job a sample is verified; where that finds damage, and the job has replicas, its savepoints are
    repaired. Nothing is swept in a run that leaves something damaged: what is to be deleted may be what a
    repair needs. So of a job that declares its `generations`: what it has left is removed where its
    savepoints are not damaged.
    """
    given = dict(file.dag_args)
    clocks = CLOCKS.format(policy.time_zone) if policy.time_zone and policy.schedule else ""
    shown = {
        "description": f"Keeps the repository of {len(declared.jobs)} jobs whole.",
        "doc_md": f"{SUMMARY} {clocks}".strip(),
    }
    dag = DAG(
        policy.dag_id,
        **{**shown, **given, "tags": {TAG, MAINTENANCE, *given.pop("tags", ())}},
        schedule=by_clock(policy.schedule, policy.time_zone),
        catchup=False,
        **ALLOWED_RUNS,
        max_active_runs=1,
        render_template_as_native_obj=True,
        default_args=file.usual_args(),
    )
    whole: list[Any] = []
    with dag:
        for job in declared.jobs.values():
            where = {"note": "maintenance", **file.job_args(job)}
            last: Any = VerifySavepointOperator(
                task_id=f"verify_{job.name}", level="sampled", share=policy.share, **where
            )
            if policy.repair and job.replicate.to:
                repair = RepairSavepointsOperator(
                    task_id=f"repair_{job.name}", trigger_rule=TriggerRule.ONE_FAILED, **where
                )
                last >> repair
                last = repair
            if job.generations is not None:
                clean = CleanJobOperator(
                    task_id=f"clean_{job.name}", trigger_rule=TriggerRule.NONE_FAILED, **where
                )
                last >> clean
            whole.append(last)
        if policy.sweep and declared.jobs:
            first = next(iter(declared.jobs.values()))
            sweep = SweepRepositoryOperator(
                task_id="sweep",
                trigger_rule=TriggerRule.NONE_FAILED,
                note="maintenance",
                **file.job_args(first),
            )
            whole >> sweep
        if any(job.replicate.to for job in declared.jobs.values()):
            CheckReplicasOperator(
                task_id="replicas", jobs_file=file.jobs_file, streambank_conn_id=file.conn_id
            )
    return dag
