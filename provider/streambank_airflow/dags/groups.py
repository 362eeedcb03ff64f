"""Savepoints and restores as task groups, for DAGs of one's own.

```python
with DAG("nightly", schedule="@daily"):
    saved = savepoint_group("orders", jobs_file="/opt/airflow/dags/streaming_jobs.toml")
    saved >> SparkSubmitOperator(task_id="report", application="report.py")
```

The tasks are those of `<job>.savepoint` and `<job>.restore`; arguments stand where those have a form. What
the job declares in `[jobs.NAME.airflow]` counts where the DAG says nothing. An argument may be a template or
the output of a task, unless the tasks themselves depend on it: such a one is refused when the DAG is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, TaskGroup

from streambank.core.choices import RESTORE_MODES, SINK_CHOICES, SOURCE_CHOICES, VERIFICATIONS
from streambank.core.errors import InputError, check_choice
from streambank.declaration.declaration import Job
from streambank_airflow.dags.common import DagFile, read_for_dags
from streambank_airflow.dags.restore import restore_tasks
from streambank_airflow.dags.savepoint import declared_later, savepoint_tasks
from streambank_airflow.hooks.declared import find_declared, folder_of_caller, given_for, refuse_both
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID
from streambank_airflow.operators.base import is_template, known_or_template

if TYPE_CHECKING:
    from streambank.declaration.streaming_job import StreamingJob


def savepoint_group(
    job: str,
    *,
    jobs_file: str | Path | None = None,
    declaration: StreamingJob | Mapping[str, Any] | None = None,
    streambank_conn_id: str = DEFAULT_CONN_ID,
    group_id: str = "savepoint",
    pin: bool | str = False,
    verify: str | None = None,
    leave_out: Collection[str] = (),
    note: str | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> TaskGroup:
    """Take a savepoint of each query of a job, verify it, and do what the job declares to follow.

    A job that was never started is skipped, and so is what follows it. Blackouts that the job declares hold
    for `<job>.savepoint` alone: here the DAG's own schedule counts.

    Args:
        job: The declared job's name.
        jobs_file: The file that declares it, read when the DAG file is; None for the one that the environment
            variable STREAMBANK_JOBS names, or `[streambank] jobs` in Airflow's configuration.
        declaration: The job instead of a jobs file.
        streambank_conn_id: The `streambank` connection, unless the job declares one.
        group_id: The group's name; tasks are `<group_id>.take`, `<group_id>.verify`, ..., and
            `<group_id>.take_<query>` where the job has several queries.
        pin: Keep the savepoints until they are unpinned; may be a template or the output of a task, as
            `verify` and `note`.
        verify: `none`, `quick`, `full` or `sampled`; None for what the job declares.
        leave_out: What is not done though it is declared: `replicate`, `expire`, `expire_replicas`, `sweep`.
            Without `replicate` nothing is expired either.
        note: Why; kept with the savepoints.
        default_args: Arguments of the tasks, before those of the DAG.

    Returns:
        The group. The result of a task of it: `group.get_child_by_label("take").output["savepoint"]`.

    Raises:
        InputError: An argument is wrong, or the jobs file is (codes `no-declaration`, `bad-declaration`,
            `bad-choice`, `bad-option`).
        NotFoundError: The job is not declared (code `no-such-job`).
    """
    _check_known(
        "CreateSavepointOperator", job=job, jobs_file=jobs_file, leave_out=leave_out, group_id=group_id
    )
    declared, query, file = _declared(job, jobs_file, declaration, streambank_conn_id)
    if query is not None:
        raise InputError(
            f"{job!r} names a query, and a savepoint group takes all of a job.",
            code="bad-option",
            hint="Name the job alone, or use CreateSavepointOperator for one query.",
        )
    level = known_or_template(verify or declared.savepoint.verify, "verify", VERIFICATIONS)
    later = [name for name in declared_later(declared) if name not in leave_out]
    for name in leave_out:
        check_choice(name, "leave_out", ("replicate", "expire", "expire_replicas", "sweep"))
    if "replicate" in leave_out and declared.replicate.to and "expire" in later:
        later.remove("expire")  # as in `<job>.savepoint`: nothing goes while the replicas lack something
    with _group(group_id, declared, file, default_args) as group:
        savepoint_tasks(
            declared,
            file.task_args(declared, note),
            take={"pin": pin},
            batches=dict.fromkeys(declared.query_names),
            level=level,
            later=dict.fromkeys(later, True),
        )
    return group


def restore_group(
    job: str,
    *,
    jobs_file: str | Path | None = None,
    declaration: StreamingJob | Mapping[str, Any] | None = None,
    streambank_conn_id: str = DEFAULT_CONN_ID,
    group_id: str = "restore",
    savepoint: str = "latest-good",
    repository: str | None = None,
    sink: str | None = None,
    sink_of: Mapping[str, str] | Sequence[str] | None = None,
    source: str | None = None,
    mode: str = "no-claim",
    new_sinks: Mapping[str, str] | Sequence[str] | None = None,
    file_sinks: Sequence[str] = (),
    stop_running: bool = False,
    start: bool = True,
    approve: bool = True,
    note: str | None = None,
    default_args: Mapping[str, Any] | None = None,
) -> TaskGroup:
    """Plan a restore of a job, ask a person, do it, start the job and hand it to `<job>.run`.

    Args:
        jobs_file: The file that declares it, read when the DAG file is; None for the one that the environment
            variable STREAMBANK_JOBS names, or `[streambank] jobs` in Airflow's configuration.
        declaration: The job instead of a jobs file.
        streambank_conn_id: The `streambank` connection, unless the job declares one.
        group_id: The group's name; tasks are `<group_id>.plan`, `<group_id>.approve`, ...
        savepoint: As `RestoreSavepointOperator` takes it; may be a template or the output of a task, as
            `repository`, `sink`, `sink_of`, `source`, `mode`, `new_sinks` and `note`.
        repository: Where it comes from: a replica, or `nearest`; None for the job's repository.
        sink: `refuse`, `rollback`, `rollback-accept` or `accept`; None for what the job declares. So for
            `source`.
        sink_of: The same for single sinks, by the paths that a plan shows.
        source: `refuse` or `accept`.
        mode: `no-claim` or `claim`.
        new_sinks: New output directories instead of those of the savepoint.
        file_sinks: Output directories of file sinks that the savepoint does not name.
        stop_running: Stop a job that runs without a question.
        start: Start the job afterwards, and hand it to the DAG `<job>.run`, which must exist and not be
            paused.
        approve: Ask a person; without that, the group fails for what a person would have to decide, and
            changes nothing.
        note: Why; kept with the records.
        default_args: Arguments of the tasks, before those of the DAG.

    Raises:
        InputError: An argument is wrong, or the jobs file is (codes `no-declaration`, `bad-declaration`,
            `bad-choice`, `which-query`).
        NotFoundError: The job is not declared (code `no-such-job`).
    """
    switches = {"stop_running": stop_running, "start": start, "approve": approve}
    _check_known("RestoreSavepointOperator", job=job, jobs_file=jobs_file, group_id=group_id, **switches)
    declared, query, file = _declared(job, jobs_file, declaration, streambank_conn_id)
    ref = declared.savepoint_name(declared.only_query(query))
    how = {
        "sink": known_or_template(sink or declared.restore.sink, "sink", SINK_CHOICES),
        "source": known_or_template(source or declared.restore.source, "source", SOURCE_CHOICES),
        "mode": known_or_template(mode, "mode", [one for one in RESTORE_MODES if one != "fork"]),
        "sink_of": sink_of,
        "new_sinks": new_sinks,
        "file_sinks": list(file_sinks),
        "repository": repository,
    }
    with _group(group_id, declared, file, default_args) as group:
        restore_tasks(
            declared,
            {**file.task_args(declared, note), "job": ref},
            savepoint=savepoint,
            how=how,
            stop=str(stop_running).lower(),
            start=str(start).lower(),
            approve=approve,
        )
    return group


def _check_known(instead: str, **given: object) -> None:
    """Refuse what only a run knows where the tasks of a group depend on it.

    Raises:
        InputError: An argument is a template, or comes from a task or a mapped group (code `bad-option`).
    """
    for name, value in given.items():
        plain = value is None or isinstance(value, bool | PathLike | list | tuple | set | frozenset | dict)
        if not plain and is_template(value):
            raise InputError(
                f"{name} of a group must be known when the DAG is read, and is {value}.",
                code="bad-option",
                hint=f"Give it as a plain value. Where only a run knows it, use {instead} itself, and the "
                "other operators beside it.",
            )


def _declared(
    job: str, jobs_file: str | Path | None, declaration: Any, streambank_conn_id: str
) -> tuple[Job, str | None, DagFile]:
    folder = folder_of_caller(2)
    refuse_both(jobs_file, declaration)
    given = given_for(job, declaration, folder)
    declared, file = read_for_dags(jobs_file, None if given is None else [given], folder, streambank_conn_id)
    return *find_declared(declared, job), file


def _group(group_id: str, job: Job, file: DagFile, default_args: Mapping[str, Any] | None) -> TaskGroup:
    """A task group in the DAG that is open. What the DAG says comes before what the job declares."""
    group = TaskGroup(group_id, tooltip=f"Job {job.name}, declared in {file.jobs_file or 'its DAG'}")
    dag: DAG = group.dag
    group.default_args = {**file.defaults_of(job), **dag.default_args, **(default_args or {})}
    return group
