"""Reading `streaming_jobs.toml`: each job with the defaults of all, checked (docs/reference/jobs.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from streambank.core.errors import InputError
from streambank.core.names import MAIN, check_job_name
from streambank.core.python310 import parse_toml
from streambank.core.zones import UTC_NAME
from streambank.declaration.airflow import AirflowPolicy
from streambank.declaration.credentials import read_environment, refuse_credentials
from streambank.declaration.declaration import BrokenJob, Declarations, Job
from streambank.declaration.drill import DrillPolicy
from streambank.declaration.fields import Fields, GivenSource, Source, TomlLines, expand, merge, read_text
from streambank.declaration.health import read_health
from streambank.declaration.kafka import read_kafka
from streambank.declaration.launch import LOCAL_MASTER, check_cluster_name, read_launch_policy
from streambank.declaration.maintenance import GenerationsPolicy, MaintenancePolicy
from streambank.declaration.notify import read_notify, refuse_silent
from streambank.declaration.places.copies import copy_name, read_copies
from streambank.declaration.places.standby import PrimaryPlaces, read_standby
from streambank.declaration.policy import read_policy
from streambank.declaration.queries import read_queries
from streambank.declaration.savepoints import (
    StartPolicy,
    StopPolicy,
    UpgradePolicy,
    read_limits,
    read_replicate,
    read_restore,
    read_retention,
    read_savepoint,
)
from streambank.declaration.shared import refuse_shared
from streambank.declaration.sinks import read_sinks
from streambank.declaration.sla import read_sla, with_usual, without_copies
from streambank.declaration.state import read_changes, read_compact, read_hot_keys, read_state
from streambank.storage import local_path, normalize_location, scheme_of

_APART = (
    ("spark.master", "master", "master"),
    ("spark.submit.deployMode", "deploy mode", "launch.deploy_mode"),
)
"""Settings of Spark that are fields of a job: how people call them, and the fields."""


_VARIABLES: ContextVar[Callable[[], Mapping[str, str]]] = ContextVar(
    "streambank_variables", default=lambda: os.environ
)


@contextmanager
def using_variables(known: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Let what is read fill in these values by default, in place of the environment, for a `with` block."""
    token = _VARIABLES.set(known)
    try:
        yield
    finally:
        _VARIABLES.reset(token)


def load_jobs(path: str | os.PathLike[str], *, variables: Mapping[str, str] | None = None) -> Declarations:
    """Read and check a jobs file; as `read_jobs`, for who needs all of its jobs.

    Raises:
        InputError: As `read_jobs`; or a job has a mistake.
    """
    return read_jobs(path, variables=variables).whole()


def read_jobs(path: str | os.PathLike[str], *, variables: Mapping[str, str] | None = None) -> Declarations:
    """Read and check a jobs file. A mistake in one job takes no other job away: it is left in `broken`.

    Args:
        variables: What `${NAME}` stands for; by default the environment, or what `using_variables` says.

    Raises:
        InputError: It cannot be read (code `no-declaration`) or something in it is wrong (`bad-declaration`);
            the message names file, line and field.
    """
    file, folder = _place(path)
    text = read_text(file)
    try:
        data = parse_toml(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError
        raise InputError(
            f"{file} is not valid TOML: {error}.",
            code="bad-declaration",
            hint="Repair that line; docs/reference/jobs.md shows how a job is declared.",
        ) from error
    source = Source(file, TomlLines(text), folder)
    known = _VARIABLES.get()() if variables is None else variables
    given = {
        name: value if name == "jobs" else expand(value, source, (name,), known)
        for name, value in data.items()
    }
    top = Fields(given, (), source)
    repository = top.required("repository", top.location("repository"))
    control = top.location("control")
    defaults = top.table("defaults")
    for name in ("application", "checkpoint", "queries", "args", "description", "sinks", "standby", "copies"):
        if name in defaults.data:
            raise defaults.mistake(name, "it belongs to a job, not to the defaults of all")
    _read_job(Fields(defaults.data, ("defaults",), source), None, repository, control)
    jobs: dict[str, Job] = {}
    broken: dict[str, BrokenJob] = {}
    for name in top.table("jobs").data:
        try:
            own = top.table("jobs").table(name)
            mine = expand(own.data, source, own.path, known)
            merged = Fields(merge(defaults.data, mine), own.path, source)
            jobs[name] = _read_job(merged, name, repository, control)
        except InputError as error:
            table = data["jobs"][name]
            told = {**defaults.data, **(table if isinstance(table, dict) else {})}.get("notify")
            job = _nameless(error, name, source, repository, control, told, known)
            broken[name] = BrokenJob(error, job)
    maintenance = read_policy(top.table("maintenance"), MaintenancePolicy) if "maintenance" in data else None
    top.done()
    refuse_shared(jobs, source)
    return Declarations(file, repository, control, jobs, maintenance, broken)


def _place(path: str | os.PathLike[str]) -> tuple[str, Path | None]:
    """A jobs file as messages name it, and the folder of relative paths in it; none of one in a storage."""
    named = os.fspath(path)
    if scheme_of(named) != "file":
        return named, None
    file = Path(named) if not named.startswith("file:") else local_path(named)
    assert file is not None, "its scheme is file"
    return str(file), file.resolve().parent


def read_given(
    given: Iterable[Mapping[str, Any]],
    *,
    repository: str | Callable[[Mapping[str, Any]], str | None] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Declarations:
    """Read and check declarations that stand in no file, each the fields of one job's table.

    Besides them one has `name`, and may have `repository`, `control`, and `folder`, from which relative paths
    in it are taken; those of code from `dag_folder` without it. A mistake in one takes no other job away, as
    in a file.

    Args:
        repository: That of those that name none; or what says it of such a one, by its fields.
        variables: What `${NAME}` stands for; by default the environment, or what `using_variables` says.

    Raises:
        InputError: One has no name that a job can have, two have the same, or share what they must not (code
            `bad-declaration`).
    """
    known = _VARIABLES.get()() if variables is None else variables
    jobs: dict[str, Job] = {}
    broken: dict[str, BrokenJob] = {}
    for data in given:
        name, path = _name_of(data), ("jobs", _name_of(data))
        if name in jobs or name in broken:
            raise GivenSource({}).mistake(path, "there are two", "Give each job its own name.")
        source = GivenSource(data)
        try:
            filled = expand({**data}, source, path, known)
            beside = filled.pop("dag_folder", None)
            folder = Fields(filled, path, source).file("folder")  # a relative one is refused: no file has it
            folders = [Path(one) if isinstance(one, str) else None for one in (folder, beside)]
            source = GivenSource(data, *folders)
            fields = Fields(filled, path, source)
            for known_to_all in ("name", "folder"):
                fields.text(known_to_all)
            place = fields.location("repository")
            if place is None and (usual := repository(filled) if callable(repository) else repository):
                place = normalize_location(usual)
            jobs[name] = _read_job(fields, name, fields.required("repository", place), None)
        except InputError as error:
            broken[name] = BrokenJob(
                error, _nameless(error, name, source, "/not-known", None, data.get("notify"), known)
            )
    refuse_shared(jobs, GivenSource({}))
    shared = repository if isinstance(repository, str) else ""
    return Declarations("What is given as declaration", shared, None, jobs, None, broken)


def _name_of(data: Mapping[str, Any]) -> str:
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(
            "A declaration has no name.",
            code="bad-declaration",
            hint='Name the job in it, {"name": "orders", ...}, or beside it, job="orders".',
        )
    return name


def _nameless(
    error: InputError,
    name: str,
    source: Source,
    repository: str,
    control: str | None,
    told: Any,
    variables: Mapping[str, str],
) -> Job:
    """A job of which only the name counts, and who is alerted where that can be read (`told`).

    Raises:
        InputError: Its name is the mistake: then there is no such job.
    """
    path = ("jobs", name)
    known = {"application": "/not-known", "checkpoint": "/not-known"}
    try:
        job = _read_job(Fields(known, path, source), name, repository, control)
    except InputError:
        raise error from None
    with suppress(InputError):  # there, or there as well, is the mistake
        notify = expand(told or [], source, (*path, "notify"), variables)
        return replace(job, notify=read_notify(Fields({"notify": notify}, path, source), kinds=True))
    return job


def _read_job(fields: Fields, name: str | None, repository: str, control: str | None) -> Job:
    """One job, or (without a name) the defaults, which are checked by the same rules."""
    application, checkpoint = fields.file("application"), fields.location("checkpoint")
    if name is not None:
        fields.source.checked(fields.path, lambda: check_job_name(name))
        application = fields.required("application", application)
        checkpoint = fields.required("checkpoint", checkpoint)
    spark = fields.settings("spark")
    for setting, what, use in _APART:
        if setting in spark:
            where = (*fields.path, "spark", setting)
            raise fields.source.mistake(where, f"the {what} is a separate field", f"Use {use}.")
    refuse_credentials(spark, fields)
    launch = read_launch_policy(fields.table("launch"), fields.text("master"), spark, defaults=name is None)
    named = read_queries(fields)
    queries = {one: f"{checkpoint or ''}/{one}" for one in named} or {MAIN: checkpoint or ""}
    python, time_zone = fields.interpreter("python"), fields.time_zone()
    clock = time_zone or UTC_NAME
    savepoint = read_savepoint(fields.table("savepoint"), clock)
    job = Job(
        name=name or "",
        application=application or "",
        checkpoint=checkpoint or "",
        queries=queries,
        spark_names={one: theirs for one, theirs in named.items() if one != theirs},
        repository=repository,
        control=fields.location("control") or control,
        args=fields.texts("args") or (),
        python=python or sys.executable,
        named_python=python,
        spark_home=fields.file("spark_home"),
        named_spark_home=fields.file("spark_home"),
        master=launch.master or LOCAL_MASTER,
        spark=spark,
        env=read_environment(fields),
        working_dir=fields.file("working_dir") or _working_dir(fields.source, application or ""),
        description=fields.text("description") or "",
        tags=fields.texts("tags") or (),
        time_zone=time_zone,
        savepoint=savepoint,
        restore=read_restore(fields.table("restore")),
        upgrade=read_policy(fields.table("upgrade"), UpgradePolicy),
        stop=read_policy(fields.table("stop"), StopPolicy),
        start=read_policy(fields.table("start"), StartPolicy),
        limits=read_limits(fields),
        health=read_health(fields.table("health")),
        retention=read_retention(fields.table("retention"), clock),
        replicate=read_replicate(fields.table("replicate"), repository, clock),
        sla=with_usual(read_sla(fields.table("sla"), time_zone), savepoint, spark, clock),
        kafka=read_kafka(fields.table("kafka")),
        sinks=read_sinks(fields, queries),
        state=read_state(fields.table("state")),
        compact=read_compact(fields.table("compact"), queries),
        changes=read_changes(fields, queries),
        hot_keys=read_hot_keys(fields),
        drill=read_policy(fields.table("drill"), DrillPolicy),
        generations=read_policy(fields.table("generations"), GenerationsPolicy)
        if "generations" in fields.data
        else None,
        airflow=read_policy(fields.table("airflow"), AirflowPolicy),
        launch=launch,
        notify=read_notify(fields, kinds=True),
        signed=fields.boolean("signed") or False,
        source=fields.source.path,
        line=fields.source.line(fields.path),
    )
    standby = fields.table("standby")
    env = read_environment(standby) if "env" in standby.data else None
    places = PrimaryPlaces(job.checkpoint, queries, repository, job.control, job.replicate.to, spark)
    copies = read_copies(fields.table("copies"), places)
    job = replace(
        job,
        standby=read_standby(standby, places, env=env),
        copies=copies,
        sla=job.sla if copies or name is None else without_copies(job.sla, fields.table("sla")),
    )
    for copy in job.copies:
        check_cluster_name(copy_name(job.name, copy), launch, fields.table("copies").table(copy))
    fields.done()
    if name is not None:
        refuse_silent(fields, job.notify, _silent_kinds(job, fields.table("sla")))
    return job


def _working_dir(source: Source, application: str) -> str:
    """That of a file is its folder; else the application's: a DAG's folder may go with a version of it."""
    if source.folder is not None and not isinstance(source, GivenSource):
        return str(source.folder)
    return str(Path(application).parent)


def _silent_kinds(job: Job, sla: Fields) -> dict[str, str]:
    """Kinds of alerts that can never occur in a job, with the reason."""
    silent = {}
    if job.restore.deadline_s is None:
        silent["late-restore"] = "restore.deadline is not declared"
    if not job.replicate.to:
        silent["replica-failed"] = "the job has no replicas"
    if not job.copies:
        silent["refresh-failed"] = "the job declares no copies"
    if sla.data.get("schedule") == "never":
        silent["sla"] = "sla.schedule is never"
    return silent
