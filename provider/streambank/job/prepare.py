"""From a declared job to a launch spec, and what speaks against a launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from streambank.errors import InputError, NotFoundError, RefusedError
from streambank.job.batches import batches_of
from streambank.job.control import JobControl
from streambank.job.declaration import Job
from streambank.job.generations import MAIN, Generation
from streambank.job.launch import LaunchSpec, QuerySpec, new_launch_id
from streambank.job.taken_back import check_not_taken_back
from streambank.storage import normalize_location, open_store, scheme_of
from streambank.times import to_json_time, utc_now


def prepare_launch(
    job: Job,
    control: JobControl,
    *,
    by: Mapping[str, str],
    launch_id: str | None = None,
    application: str | None = None,
    args: Sequence[str] | None = None,
    log: str | None = None,
    desired: int | None = None,
) -> LaunchSpec:
    """The launch spec of a job as it stands now; at its first, the declared checkpoint becomes generation 1.

    Args:
        job: The declared job.
        control: Its records.
        by: Who asks.
        launch_id: The launch's id; a fresh one when left out.
        application: Another application than the declared one, with `args`.
        args: Its arguments; the declared ones when both are left out.
        log: Path of the driver's log, where somebody collects it.
        desired: The number of the record by which the job is meant to run (`LaunchSpec`).

    Raises:
        RefusedError: The declared checkpoint is another one than the job began with (code
            `checkpoint-changed`), the checkpoint that the query worked in is gone (`checkpoint-lost`), a
            restore that was not finished has taken its sinks back (`sinks-taken-back`), or its generation
            writes elsewhere than the arguments say (`old-sink`); or files of the checkpoint that Spark would
            load are damaged, and there is a savepoint to restore (`checkpoint-damaged`).
    """
    from streambank.job.damaged import refuse_damaged  # it loads the repository, and a DAG's file needs none

    declared = application is None and args is None
    launched = job.args if declared else tuple(args or ())
    queries = {}
    for name, checkpoint in job.queries.items():
        generation = control.generations(None if name == MAIN else name).ensure_first(checkpoint, by=by)
        check_not_taken_back(control, None if name == MAIN else name, generation)
        _refuse_lost(job, control, name, generation)
        _refuse_old_sink(job, launched, generation)
        refuse_damaged(job, name, generation.location)
        queries[name] = QuerySpec(
            generation.location,
            generation.number,
            batches_of(generation.location).committed,
            dict(generation.new_sinks),
        )
    return LaunchSpec(
        job=job.name,
        launch_id=launch_id or new_launch_id(),
        application=application or job.application,
        args=launched,
        control=normalize_location(job.control),
        queries=queries,
        launched_at=to_json_time(utc_now()),
        by=dict(by),
        force_after_s=job.stop.force_after_s,
        drain_timeout_s=job.stop.drain_timeout_s,
        beat_s=job.limits.beat_s,
        ttl_s=job.limits.ttl_s,
        log=log,
        log_max_bytes=job.limits.log_max_bytes,
        log_files=job.limits.log_files,
        progress_max_bytes=job.limits.progress_max_bytes,
        progress_files=job.limits.progress_files,
        progress_age_s=job.limits.progress_age_s,
        on=job.launch.on,
        deploy_mode=job.launch.deploy_mode,
        supervised=job.launch.comes_back(job.spark),
        desired=desired,
        asked=max(control.requests.records.numbers(), default=0),
    )


def check_application(application: str) -> Path:
    """The application as a readable PySpark program.

    Raises:
        InputError: It is something else (code `not-pyspark`): a jar, a notebook, an archive.
        NotFoundError: There is no such file (code `no-application`).
    """
    path = check_is_pyspark(application)
    if not path.is_file():
        raise NotFoundError(
            f"There is no application {application}.",
            code="no-application",
            hint="Give the path as the driver's host sees it.",
        )
    return path


def check_is_pyspark(application: str) -> Path:
    """The application as a PySpark program, wherever it is.

    Raises:
        InputError: By its name it is something else (code `not-pyspark`).
    """
    path = Path(application)
    if path.suffix != ".py":
        what = "A Scala or Java application" if path.suffix == ".jar" else f"{path.name!r}"
        raise InputError(
            f"{what} cannot be run by the runner: {application}.",
            code="not-pyspark",
            hint="Give a PySpark program (.py). Any application's checkpoint can have savepoints.",
        )
    return path


def _refuse_lost(job: Job, control: JobControl, name: str, generation: Generation) -> None:
    """Start nothing from nothing: a query whose checkpoint has gone would begin again at batch 0.

    A file sink then drops every batch whose number it has seen, silently; other sinks get all rows again.
    """
    facts = control.query_facts(None if name == MAIN else name) or {}
    began = facts.get("generation") == generation.number and facts.get("query_id") is not None
    if began and not open_store(generation.location).exists("metadata"):
        raise RefusedError(
            f"The checkpoint {generation.location} of job {job.name} is gone or empty, "
            f"though query {name} has worked in it.",
            code="checkpoint-lost",
            hint=f"Restore a savepoint: `streambank restore latest-good --job {job.name} --generation`. "
            "To begin from nothing, give the job a new name and a new output.",
        )


def _refuse_old_sink(job: Job, args: Sequence[str], generation: Generation) -> None:
    """Start nothing that would go on in the output from which a restore took the query away.

    That output may have later batches, and Spark skips in silence what it writes again under their numbers.
    """
    said = {place for arg in args for place in _places(arg, job.working_dir)}
    for old, new in generation.new_sinks.items():
        if old in said:
            raise RefusedError(
                f"An argument of job {job.name} names the output directory {old}, but its generation "
                f"{generation.number} was restored to write to {new}.",
                code="old-sink",
                hint="Declare the new directory and start again. To go on in the old one, restore a "
                "savepoint of it without a new sink.",
            )


def _places(arg: str, working_dir: str) -> Iterator[str]:
    """What an argument may mean as a location: all of it, or what stands behind the first equals sign."""
    for text in (arg, arg.partition("=")[2]):
        if text:
            try:
                yield normalize_location(text if scheme_of(text) != "file" else _absolute(text, working_dir))
            except InputError:
                continue  # it is no location


def _absolute(text: str, working_dir: str) -> str:
    return text if text.startswith("file:") else str(Path(working_dir, text))
