"""`<job>.savepoint`: take, verify, replicate, expire, sweep, on a schedule and by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import DAG, TriggerRule

from streambank.core.units import utc_now
from streambank.core.zones import UTC_NAME, time_zone
from streambank.declaration.declaration import Job
from streambank_airflow.arguments import Jinja
from streambank_airflow.dags.common import DagFile
from streambank_airflow.dags.forms import daily
from streambank_airflow.dags.stagger import SHIFTED, staggered
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
BLACKOUT = "Scheduled runs are skipped within {} ({})."


def savepoint_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.savepoint`: a pair of tasks for each query of the job, then what else it declares.

    What comes after the verifications runs once, for all queries: when at least one savepoint was taken and
    nothing before it has failed. So what is damaged is not replicated, and nothing is expired while the
    replicas lack something: a run whose form leaves them out does not expire either.
    """
    queries = [query for query in job.query_names if query is not None]
    schedule = job.savepoint.schedule
    if schedule is not None and job.savepoint.stagger_s:
        schedule = staggered(schedule, job.name, job.savepoint.stagger_s, _window_minutes(job))
    later = declared_later(job)
    dag = file.dag(
        job,
        "savepoint",
        summary=_summary(job, queries, schedule),
        params=daily.savepoint_form(job.savepoint.verify, queries, later=tuple(later)),
        schedule=schedule,
    )
    with dag:
        gate = _gate(job)
        takes = savepoint_tasks(
            job,
            file.task_args(job),
            take={"pin": "{{ params.pin }}", "name": "{{ params.name or '' }}"},
            batches={query: f"{{{{ params['{daily.batch_field(query)}'] }}}}" for query in job.query_names},
            level="{{ params.verify }}",
            later={task_id: _only_if(task_id, later) for task_id in later},
        )
        if gate is not None:
            gate >> takes
    return dag


def savepoint_tasks(
    job: Job,
    args: Mapping[str, Any],
    *,
    take: Mapping[str, Any],
    batches: Mapping[str | None, Any],
    level: str,
    later: Mapping[str, bool | str],
) -> list[StreambankOperator]:
    """Take and verify a savepoint of each query, and what follows, in the DAG or task group that is open.

    Args:
        batches: Which batch of each query; None for the last committed one.
        later: What follows, of `declared_later`, and whether it is done: a boolean or a template.
    """
    takes: list[StreambankOperator] = []
    before: list[StreambankOperator] = []
    for query in job.query_names:
        taken, verified = _take_and_verify(job, query, args, {**take, "batch": batches[query]}, level)
        taken >> verified
        takes.append(taken)
        before += [taken, verified]
    operators = declared_later(job)
    for task_id, only_if in later.items():
        task = operators[task_id](
            task_id=task_id, only_if=only_if, trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS, **args
        )
        before >> task
        before.append(task)
    return takes


def declared_later(job: Job) -> dict[str, type[RepositoryOperator]]:
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
    """Minutes of the schedule's hour at which blackout windows begin, in summer and in winter."""
    if not job.savepoint.blackout:
        return set()
    windows, clock = time_zone(job.savepoint.time_zone), time_zone(job.time_zone or UTC_NAME)
    begins = [
        datetime(utc_now().year, month, 1, window.begin // 60, window.begin % 60, tzinfo=windows)
        for month in (1, 7)
        for window in job.savepoint.blackout
    ]
    return {begin.astimezone(clock).minute for begin in begins}


def _gate(job: Job) -> SkipInBlackoutOperator | None:
    if not job.savepoint.blackout:
        return None
    return SkipInBlackoutOperator(
        task_id="blackout",
        windows=[str(window) for window in job.savepoint.blackout],
        time_zone=job.savepoint.time_zone,
    )


def _take_and_verify(
    job: Job, query: str | None, args: Mapping[str, Any], more: Mapping[str, Any], level: str
) -> tuple[CreateSavepointOperator, VerifySavepointOperator]:
    suffix = f"_{query}" if query else ""
    of_query = {**args, "job": job.savepoint_name(query)}
    take = CreateSavepointOperator(
        task_id=f"take{suffix}",
        closure=job.savepoint.closure,
        skip_if_never_started=True,
        **more,
        **of_query,
    )
    verify = VerifySavepointOperator(
        task_id=f"verify{suffix}",
        savepoint=f"{{{{ ti.xcom_pull(task_ids='{take.task_id}')['savepoint'] }}}}",
        level=Jinja(level),
        share=job.savepoint.share,
        **of_query,
    )
    return take, verify
