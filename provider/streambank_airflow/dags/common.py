"""What the DAGs of a job have in common, and what a DAG file and a job may say about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import DAG, Param

from streambank.core.errors import InputError
from streambank.declaration.declaration import Declarations, Job
from streambank.declaration.load import read_given, read_jobs
from streambank.declaration.savepoints import RestorePolicy
from streambank.storage import scheme_of
from streambank_airflow.airflow_versions import (
    RETRY_BACKOFF,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    only_run_types,
)
from streambank_airflow.configuration import JOBS_VARIABLE, SECTION, TAG, installed_jobs_file
from streambank_airflow.hooks.connection import find_settings
from streambank_airflow.hooks.declared import given_for, located, refuse_both, saying_where
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID, StreambankHook
from streambank_airflow.hooks.values import AirflowValues
from streambank_airflow.operators.approve import PLAN_KEY, SUBJECT_KEY, ApprovePlanOperator
from streambank_airflow.operators.base import GENERATIONS_KEY, StreambankOperator

if TYPE_CHECKING:
    from airflow.sdk.definitions.deadline import DeadlineAlert

RETRIES = 3
"""How often a task is tried again where a retry may heal; what somebody has to decide fails at once."""

NOTE = "{{ params.note }}"
"""Template of the form's note; None where nobody wrote one."""

ALLOWED_RUNS = only_run_types(
    "manual", "scheduled", "operator_triggered", "asset_triggered", "asset_materialization"
)
"""How a run may come about. No backfill: all its runs would work on the job as it is today."""

_DECLARED = "the jobs file declares it for each job"
_BUILT = "the tasks rely on it"
OWN_DAG_ARGS: Mapping[str, str] = {
    "dag_id": "each DAG is named after its job and its verb",
    "default_args": "it is an argument of build_dags",
    "schedule": _DECLARED,
    "params": "the form is made of what the job declares",
    "catchup": "a savepoint of yesterday cannot be taken today",
    "allowed_run_types": "a backfill would work on the job as it is today",
    "max_active_runs": _BUILT,
    "deadline": "restore.deadline in the jobs file declares it",
    "render_template_as_native_obj": _BUILT,
    "fail_fast": "a job that fails on its way to a new generation would not be brought back",
}
"""Arguments of a DAG that `dag_args` may not have, with the reason."""
OWN_DEFAULT_ARGS: Mapping[str, str] = {
    "task_id": "each task has its own",
    "params": "the form is made of what the job declares",
    "job": _BUILT,
    "jobs_file": "it is an argument of build_dags",
    "declaration": "build_dags takes declarations as jobs",
    "streambank_conn_id": "it is an argument of build_dags; or say connection in the job's table airflow",
    "note": "the form asks for it",
    "trigger_rule": "a restore that was rejected would be done",
    "depends_on_past": "a run that failed would keep the next one from repairing what it left",
    "wait_for_downstream": "a run that failed would keep the next one from repairing what it left",
    "do_xcom_push": _BUILT,
    "multiple_outputs": _BUILT,
}
"""Arguments of a task that `default_args` may not have, with the reason."""
CLOCKS = "Its schedule is by the clocks of {}."
CLOCKLESS = ("@once", "@continuous")
"""Presets that no clock has a part in."""
CronTimetable = CronDataIntervalTimetable | CronTriggerTimetable
CALLBACKS = {
    "on_failure_callback": "on_failure",
    "on_retry_callback": "on_retry",
    "on_success_callback": "on_success",
}
"""Airflow's arguments for what is called, and the fields of `[jobs.NAME.airflow]`."""


@dataclass(frozen=True)
class DagFile:
    """What a DAG file says about the DAGs of all its jobs. What a job declares for itself comes before it.

    Attributes:
        declarations: The jobs instead of a jobs file, as plain data, by name.
        conn_id: The `streambank` connection of all tasks.
        default_args: Arguments of all tasks.
        dag_args: Arguments of all DAGs.
    """

    jobs_file: str | None
    conn_id: str = DEFAULT_CONN_ID
    default_args: Mapping[str, Any] = field(default_factory=dict)
    dag_args: Mapping[str, Any] = field(default_factory=dict)
    declarations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def check(self, verbs: Sequence[str]) -> None:
        """Refuse arguments that would break what the DAGs promise.

        Raises:
            InputError: One is of that kind (code `bad-option`); the message says why.
        """
        _refuse("dag_args", self.dag_args, OWN_DAG_ARGS)
        _refuse("default_args", self.default_args, OWN_DEFAULT_ARGS)
        if self.dag_args.get("dagrun_timeout") is not None and "run" in verbs:
            raise InputError(
                "dag_args cannot have dagrun_timeout: a run of <job>.run lasts as long as its job, and "
                "nothing would watch the job after that time.",
                code="bad-option",
                hint='Call build_dags twice: with only=["run"] without it, and with the other verbs and it.',
            )

    def connection_of(self, job: Job) -> str:
        return job.airflow.connection or self.conn_id

    def job_args(self, job: Job) -> dict[str, Any]:
        """Where a task finds the job: the arguments that all operators and sensors have."""
        return {
            "job": job.name,
            **self.declared_by(job),
            "streambank_conn_id": self.connection_of(job),
        }

    def declared_by(self, job: Job) -> dict[str, Any]:
        """What declares a job, as tasks have it."""
        given = self.declarations.get(job.name)
        return {"jobs_file": self.jobs_file} if given is None else {"declaration": given}

    def task_args(self, job: Job, note: str | None = NOTE) -> dict[str, Any]:
        """The arguments of a task that does something to a job: where it is, and why it is done."""
        return {**self.job_args(job), "note": note}

    def usual_args(self) -> dict[str, Any]:
        """The `default_args` of a DAG that is of no job."""
        return {
            "retries": RETRIES,
            "retry_delay": timedelta(seconds=10),
            "retry_exponential_backoff": RETRY_BACKOFF,
            "max_retry_delay": timedelta(minutes=5),
            **self.default_args,
        }

    def defaults_of(self, job: Job) -> dict[str, Any]:
        """The `default_args` of a job's DAGs."""
        own = job.airflow
        declared = {
            "owner": own.owner,
            "pool": own.pool,
            "queue": own.queue,
            "priority_weight": own.priority,
            "executor": own.executor,
            "retries": own.retries,
        }
        callbacks = {
            argument: [*as_list(self.default_args.get(argument)), *_functions(job, name)]
            for argument, name in CALLBACKS.items()
        }
        return {
            **self.usual_args(),
            **{name: value for name, value in declared.items() if value is not None},
            **{argument: functions for argument, functions in callbacks.items() if functions},
        }

    def dag(
        self,
        job: Job,
        verb: str,
        *,
        summary: str,
        params: Mapping[str, Param],
        schedule: str | None = None,
        one_at_a_time: bool = True,
        deadline: Sequence[DeadlineAlert] = (),
    ) -> DAG:
        """A DAG of a job, still without tasks.

        Args:
            verb: `run`, `stop`, `savepoint`, `restore`, `drill`, `upgrade`, `sla`, `compact`, `rescale`,
                `transform`, `bootstrap`, `failover`, or `refresh.` with the name of a copy.
            summary: What it does, in a few sentences; Markdown, since it stands on the DAG's page. The list
                of DAGs shows the first one.
            schedule: When it runs by itself, by the clocks of the job's time zone.
        """
        own, given = job.airflow, dict(self.dag_args)
        tags = {TAG, job.name, *job.tags, *given.pop("tags", ())}
        roles = {**(given.pop("access_control", None) or {}), **_roles(job)}
        declared = {
            "access_control": roles or None,
            "dag_display_name": f"{own.display_name}: {verb}" if own.display_name else None,
            "is_paused_upon_creation": own.paused,
        }
        clocks = CLOCKS.format(job.time_zone) if job.time_zone and schedule else ""
        shown = {
            "description": f"{job.description} {_first_sentence(summary)}".strip(),
            "doc_md": "\n\n".join(
                filter(None, [summary, job.description, f"Declared as `[jobs.{job.name}]`.", clocks])
            ),
        }
        return DAG(
            dag_id(job.name, verb),
            **{**shown, **given, **{name: value for name, value in declared.items() if value is not None}},
            schedule=by_clock(schedule, job.time_zone),
            catchup=False,
            **ALLOWED_RUNS,
            max_active_runs=1 if one_at_a_time else 16,
            params=dict(params),
            deadline=list(deadline) or None,
            render_template_as_native_obj=True,
            tags=tags,
            default_args=self.defaults_of(job),
        )


def by_clock(schedule: str | None, time_zone: str | None) -> str | CronTimetable | None:
    """A schedule by the clocks of a declared time zone; what names no time of the day stays as it is.

    Args:
        schedule: A cron expression of five fields, or one of Airflow's presets.
        time_zone: None for those that Airflow uses by default, `[core] default_timezone`.
    """
    if schedule is None or time_zone is None or schedule in CLOCKLESS:
        return schedule
    # As Airflow itself chooses for a schedule that is text.
    if conf.getboolean("scheduler", "create_cron_data_intervals"):
        return CronDataIntervalTimetable(schedule, timezone=time_zone)
    return CronTriggerTimetable(schedule, timezone=time_zone)


def dag_id(job: str, verb: str) -> str:
    """The id of one of a job's DAGs."""
    return f"{job}.{verb}"


def approve_task(policy: RestorePolicy, plan: StreambankOperator, **more: Any) -> ApprovePlanOperator:
    """The task that asks a person whether what another one has planned is to be done; silence is no consent.

    Args:
        policy: The job's table `restore`: who may answer, and for how long they are waited for.
        plan: The task that leaves its plan and its question.
    """
    return ApprovePlanOperator(
        task_id="approve",
        subject=left_by(plan, SUBJECT_KEY),
        body=left_by(plan, PLAN_KEY),
        defaults=ApprovePlanOperator.REJECT,
        shown=left_by(plan, GENERATIONS_KEY),
        assigned_users=[{"id": one, "name": one} for one in policy.approvers] or None,
        response_timeout=timedelta(seconds=policy.approval_timeout_s),
        **more,
    )


def left_by(task: StreambankOperator, key: str) -> str:
    """A template for what a task has left under a key."""
    return f"{{{{ ti.xcom_pull(task_ids='{task.task_id}', key='{key}') }}}}"


def as_list(value: Any) -> list[Any]:
    """One or several of Airflow's callbacks, or none, as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _refuse(argument: str, given: Mapping[str, Any], own: Mapping[str, str]) -> None:
    for name in given:
        if name in own:
            raise InputError(
                f"{argument} cannot have {name}: {own[name]}.",
                code="bad-option",
                hint=f"Remove {name} from {argument}.",
            )


def _roles(job: Job) -> dict[str, Any]:
    """The permissions by role that a job declares, as Airflow wants them."""
    return {
        role: {resource: set(names) for resource, names in allowed.items()}
        if isinstance(allowed, Mapping)
        else set(allowed)
        for role, allowed in job.airflow.access_control.items()
    }


def read_for_dags(
    jobs_file: str | PathLike[str] | None,
    jobs: Sequence[Any] | None,
    folder: str | None,
    conn_id: str = DEFAULT_CONN_ID,
) -> tuple[Declarations, DagFile]:
    """The jobs that a DAG file declares, and the arguments by which its tasks find them.

    Args:
        jobs: Declarations instead of a jobs file.
        folder: That of the DAG file.

    Raises:
        InputError: The file or a declaration is wrong, both are given (code `bad-option`) or none
            (`no-declaration`).
        StorageError: The storage of the file, or Airflow for a value that is named, does not answer.
    """
    refuse_both(jobs_file, jobs)
    if jobs is None:
        path = located(jobs_file or installed_jobs_file(), folder)
        if path is None:
            raise InputError(
                "No jobs file is named.",
                code="no-declaration",
                hint=f"Give jobs_file=, or set {JOBS_VARIABLE}, or [{SECTION}] jobs in Airflow's "
                "configuration, where Airflow reads DAGs; or declare the job here.",
            )
        if scheme_of(path) == "file":
            with saying_where(path, folder):
                return read_jobs(path, variables=AirflowValues()), DagFile(path, conn_id)
        return StreambankHook(conn_id, path).declared.read(), DagFile(path, conn_id)
    given = [one for each in jobs if (one := given_for(None, each, folder)) is not None]

    @cache
    def repository_of(connection: str) -> str | None:
        return find_settings(connection).repository

    def usual(job: Mapping[str, Any]) -> str | None:
        own = job.get("airflow")
        named = own.get("connection") if isinstance(own, Mapping) else None
        return repository_of(str(named or conn_id))  # as `connection_of` has it for the tasks

    declared = read_given(given, repository=usual, variables=AirflowValues())
    return declared, DagFile(None, conn_id, declarations={one["name"]: one for one in given})


def _where(job: Job) -> str:
    if not job.source:
        return f"Declaration of job {job.name}: "
    return f"{job.source}, line {job.line}: jobs.{job.name}."


def _functions(job: Job, name: str) -> list[Callable[..., Any]]:
    """The functions that a job names in one of its fields, imported.

    Raises:
        InputError: One cannot be imported (code `bad-declaration`).
    """
    found = []
    for dotted in getattr(job.airflow, name):
        module, _, function = dotted.rpartition(".")
        try:
            found.append(getattr(import_module(module), function))
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"{_where(job)}airflow.{name}: {dotted} cannot be imported: {error}.",
                code="bad-declaration",
                hint="Install its module where Airflow runs, or put it into Airflow's folder plugins.",
            ) from error
    return found


def _first_sentence(markdown: str) -> str:
    return markdown.partition(". ")[0].rstrip(".").replace("`", "") + "."
