"""What the DAGs of a job have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import DAG, Param

from streambank.declaration.declaration import Job

if TYPE_CHECKING:
    from airflow.sdk.definitions.deadline import DeadlineAlert

RETRIES = 3
"""How often a task is tried again where a retry may heal; what somebody has to decide fails at once."""

NOTE = "{{ params.note }}"
"""Template of the form's note; None where nobody wrote one."""


RUN_TYPES = ("manual", "scheduled", "operator_triggered", "asset_triggered", "asset_materialization")
"""How a run may come about. No backfill: all its runs would work on the job as it is today."""


def dag_id(job: str, verb: str) -> str:
    """The id of one of a job's DAGs."""
    return f"{job}.{verb}"


def job_dag(
    job: Job,
    verb: str,
    *,
    summary: str,
    params: Mapping[str, Param],
    schedule: str | timedelta | None = None,
    one_at_a_time: bool = True,
    deadline: Sequence[DeadlineAlert] = (),
) -> DAG:
    """A DAG of a job, still without tasks.

    Args:
        job: The declared job.
        verb: `run`, `stop`, `savepoint`, `restore` or `sla`.
        summary: What it does, in one sentence; Markdown, since it stands on the DAG's page.
        params: The form.
        schedule: When it runs by itself.
        one_at_a_time: Whether a second run waits for the first.
        deadline: What Airflow is to watch of each run.
    """
    return DAG(
        dag_id(job.name, verb),
        schedule=schedule,
        catchup=False,
        allowed_run_types=cast(Any, RUN_TYPES),  # Airflow makes its own type of the names
        max_active_runs=1 if one_at_a_time else 16,
        params=dict(params),
        deadline=list(deadline) or None,
        render_template_as_native_obj=True,
        tags={"streambank", job.name, *job.tags},
        doc_md="\n\n".join(filter(None, [summary, job.description, f"Declared as `[jobs.{job.name}]`."])),
        default_args={
            "retries": RETRIES,
            "retry_delay": timedelta(seconds=10),
            "retry_exponential_backoff": 2.0,
            "max_retry_delay": timedelta(minutes=5),
        },
    )


def task_args(job: Job, jobs_file: str) -> dict[str, Any]:
    """The arguments that every task of a job's DAGs gets."""
    return {"job": job.name, "jobs_file": jobs_file, "note": NOTE}
