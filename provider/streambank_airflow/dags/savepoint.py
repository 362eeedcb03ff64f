"""`<job>.savepoint`: take, verify, replicate, expire, sweep, on a schedule and by hand."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, TriggerRule

from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank_airflow.dags import forms
from streambank_airflow.dags.common import job_dag, task_args
from streambank_airflow.dags.stagger import staggered
from streambank_airflow.operators.base import StreambankOperator
from streambank_airflow.operators.blackout import SkipInBlackoutOperator
from streambank_airflow.operators.repository import (
    ExpireReplicasOperator,
    ExpireSavepointsOperator,
    ReplicateSavepointsOperator,
    RepositoryOperator,
    SweepRepositoryOperator,
)
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator

ONE = "Takes a savepoint of the running job, without stopping it, and verifies it."
SEVERAL = (
    "Takes a savepoint of each query of the running job ({}), without stopping it, and verifies it. Each is "
    "whole by itself, but they are not mutually consistent: no two are of the same moment."
)
SHIFTED = "Declared with the schedule `{}`; runs on `{}`, so that jobs do not all start at once."
BLACKOUT = "Scheduled runs are skipped within {} ({})."


def savepoint_dag(job: Job, jobs_file: str) -> DAG:
    """Build `<job>.savepoint`: a pair of tasks for each query of the job, then what else it declares.

    What comes after the verifications runs once, for all queries: when at least one savepoint was taken and
    nothing before it has failed. So what is damaged is not replicated, and nothing is expired while the
    replicas lack something: a run whose form leaves them out does not expire either.
    """
    queries = [query for query in job.query_names if query is not None]
    schedule = job.savepoint.schedule
    if schedule is not None and job.savepoint.stagger_s:
        schedule = staggered(schedule, job.name, job.savepoint.stagger_s, _window_minutes(job))
    later = _declared(job)
    dag = job_dag(
        job,
        "savepoint",
        summary=_summary(job, queries, schedule),
        params=forms.savepoint_form(job.savepoint.verify, queries, later=tuple(later)),
        schedule=schedule,
    )
    with dag:
        gate = _gate(job)
        before: list[StreambankOperator] = []
        for query in job.query_names:
            take, verify = _take_and_verify(job, query, jobs_file)
            take >> verify
            if gate is not None:
                gate >> take
            before += [take, verify]
        for task_id, operator in later.items():
            task = operator(
                task_id=task_id,
                only_if=_only_if(task_id, later),
                trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
                **task_args(job, jobs_file),
            )
            before >> task
            before.append(task)
    return dag


def _declared(job: Job) -> dict[str, type[RepositoryOperator]]:
    """What follows the verifications, in this order; nothing that the job does not declare."""
    later: dict[str, type[RepositoryOperator]] = {}
    if job.replicate.to:
        later["replicate"] = ReplicateSavepointsOperator
    if job.retention is not None:
        later["expire"] = ExpireSavepointsOperator
    if job.replicate.retention is not None:
        later["expire_replicas"] = ExpireReplicasOperator
    if job.savepoint.sweep:
        later["sweep"] = SweepRepositoryOperator
    return later


def _only_if(task_id: str, later: Collection[str]) -> str:
    """What the form of a run has to say for a task to be done, as a template."""
    asked = ["replicate", task_id] if task_id == "expire" and "replicate" in later else [task_id]
    return f"{{{{ {' and '.join(f'params.{each}' for each in asked)} }}}}"


def _summary(job: Job, queries: Sequence[str], schedule: str | None) -> str:
    said = [SEVERAL.format(", ".join(queries)) if queries else ONE]
    if schedule != job.savepoint.schedule:
        said.append(SHIFTED.format(job.savepoint.schedule, schedule))
    if job.savepoint.blackout:
        windows = ", ".join(map(str, job.savepoint.blackout))
        said.append(BLACKOUT.format(windows, job.savepoint.time_zone))
    return " ".join(said)


def _window_minutes(job: Job) -> set[int]:
    """Minutes of the hour, by UTC, at which the job's blackout windows begin, in summer and in winter."""
    zone, year = ZoneInfo(job.savepoint.time_zone), utc_now().year
    offsets = {datetime(year, month, 1, tzinfo=zone).utcoffset() or timedelta(0) for month in (1, 7)}
    begins = [timedelta(minutes=window.begin) for window in job.savepoint.blackout]
    return {(begin - offset) // timedelta(minutes=1) % 60 for begin in begins for offset in offsets}


def _gate(job: Job) -> SkipInBlackoutOperator | None:
    if not job.savepoint.blackout:
        return None
    return SkipInBlackoutOperator(
        task_id="blackout",
        windows=[str(window) for window in job.savepoint.blackout],
        time_zone=job.savepoint.time_zone,
    )


def _take_and_verify(
    job: Job, query: str | None, jobs_file: str
) -> tuple[CreateSavepointOperator, VerifySavepointOperator]:
    suffix = f"_{query}" if query else ""
    args: dict[str, Any] = {**task_args(job, jobs_file), "job": job.savepoint_name(query)}
    take = CreateSavepointOperator(
        task_id=f"take{suffix}",
        batch=f"{{{{ params['{forms.batch_field(query)}'] }}}}",
        closure=job.savepoint.closure,
        pin="{{ params.pin }}",
        skip_if_never_started=True,
        **args,
    )
    verify = VerifySavepointOperator(
        task_id=f"verify{suffix}",
        savepoint=f"{{{{ ti.xcom_pull(task_ids='{take.task_id}')['savepoint'] }}}}",
        level="{{ params.verify }}",
        share=job.savepoint.share,
        **args,
    )
    return take, verify
