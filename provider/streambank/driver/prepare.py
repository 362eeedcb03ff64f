"""From a declared job to a launch spec, and what speaks against a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.control.copies import copied, outputs_unknown
from streambank.control.generations import Generation
from streambank.control.marker import Marker, identity_of, records_root, write_marker
from streambank.control.together import check_together
from streambank.core.errors import ConflictError, RefusedError
from streambank.core.shape import encode
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.driver.outputs import check_arguments
from streambank.driver.preflight import (
    DeclaredQuery,
    check_acceptable,
    check_start,
    declared_query,
    is_left,
    records_lost,
)
from streambank.driver.spec import LaunchSpec, QuerySpec, new_launch_id
from streambank.sinks.redirect import Redirect, query_folder
from streambank.sites.standing import SiteStanding, check_site
from streambank.storage import open_store

_GENERATION = re.compile(r"\.g[0-9]{4,}")
"""What a refresh adds to an output that a copy declares."""


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
    fresh_start: bool = False,
    why: str = "",
    standing: SiteStanding | None = None,
) -> LaunchSpec:
    """The launch spec of a job as it stands now; at its first, the declared checkpoint becomes generation 1.

    Args:
        application: Another application than the declared one, with `args`.
        args: Its arguments; the declared ones when both are left out.
        log: Path of the driver's log, where somebody collects it.
        desired: The number of the record by which the job is meant to run (`LaunchSpec`).
        fresh_start: A person accepts that the job's records are lost; without effect where they are not.
        standing: What `check_site` has said of this launch already; it is asked when left out.

    Raises:
        RefusedError: The job has another site that is the active one (codes `failed-over`, `failing-over`,
            `sites-disagree`); its records are lost (code `repository-lost`), or its checkpoint belongs to
            another job (`checkpoint-of-another-job`); the declared checkpoint is another one than the job
            began with (`checkpoint-changed`); a restore of all queries is not finished
            (`restore-unfinished`); whatever `check_start` and `check_arguments` refuse; or files
            of the checkpoint that Spark would load are damaged, and there is a savepoint to restore
            (`checkpoint-damaged`).
    """
    from streambank.driver.damage import (
        refuse_damaged,  # it loads the repository, and a DAG's file needs none
    )

    declared = application is None and args is None
    launched = job.args if declared else tuple(args or ())
    queries = {}
    standing = standing or check_site(job, control)
    check_declared(job, control, fresh_start=fresh_start)
    check_together(control, job.queries)
    if job.copy is not None:
        check_copy(job, control)
    for name, checkpoint in job.queries.items():
        query = declared_query(job, name, control)
        lost = records_lost(query, settle=True) if fresh_start else None
        if lost is not None:
            _accept(query, by=by, why=why, refused=lost.message)
        generation = control.generations(query.name).ensure_first(checkpoint, by=by)
        check_start(query, generation)
        if job.copy is None:  # on a copy, an output that the arguments name gives way to that of the copy
            check_arguments(query, generation, launched, job.working_dir)
        refuse_damaged(job, name, generation.location)
        queries[name] = QuerySpec(
            generation.location,
            generation.number,
            batches_of(generation.location).committed,
            dict(generation.new_sinks),
            checkpoint,
            job.spark_names.get(name),
            job.redirects.get(name) if job.copy is None else _redirect(job, name, generation),
            None if (replay := job.replays.get(name)) is None else encode(replay),
        )
    return LaunchSpec(
        job=job.name,
        launch_id=launch_id or new_launch_id(),
        application=application or job.application,
        args=launched,
        control=records_root(control),
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
        repository=open_store(job.repository).uri,
        repository_id=identity_of(job.repository),
        site=standing.site,
        other_control=standing.other_control,
        hot_keys=None if job.hot_keys is None else job.hot_keys.to_dict(),
    )


def check_copy(job: Job, control: JobControl) -> None:
    """Make sure that a copy of a job may be run on, and that there is one.

    Raises:
        RefusedError: It is of the state alone (code `copy-of-state`); or it was never made, or for other
            outputs than those that are declared now, or it was restored, and its outputs are not known
            (`copy-not-made`).
    """
    check_made(job, control)
    assert job.copy is not None and job.original is not None
    called = f"{job.original.name}@{job.copy.name}"
    for name in job.queries:
        current = control.generation(name)
        if current is None or current.from_savepoint is None:
            raise _never_made(job, name)  # what a refresh has made counts once the generation follows it
        unknown = outputs_unknown(control, name, current)
        if unknown is not None:
            raise unknown
        for old, new in current.new_sinks.items():
            declared = job.copy.outputs.get(old)
            if declared is None or not _GENERATION.fullmatch(new.removeprefix(declared)):
                raise RefusedError(
                    f"The copy {called} was made to write to {new} instead of {old}, and "
                    + (f"{declared} is declared now." if declared else "nothing is declared for that now."),
                    code="copy-not-made",
                    hint=f"Make the copy again: `streambank fork {job.original.name} {job.copy.name}`; or "
                    "declare the outputs as they were.",
                )


def check_made(job: Job, control: JobControl) -> None:
    """Make sure that there is a copy of a job, and that it is not of the state alone.

    A refresh that was cut off after its record counts: the start makes up for it.

    Raises:
        RefusedError: It is of the state alone (code `copy-of-state`), or was never made (`copy-not-made`).
    """
    assert job.copy is not None and job.original is not None
    called = f"{job.original.name}@{job.copy.name}"
    if job.copy.state_only:
        raise RefusedError(
            f"The copy {called} is of the state alone: no output is declared for it, so the application "
            "would write to those of the live job.",
            code="copy-of-state",
            hint=f"Declare its outputs in [jobs.{job.original.name}.copies.{job.copy.name}.outputs], and "
            "make the copy again.",
        )
    made = copied(control)
    for name in job.queries:
        generation = control.generation(name)
        if name not in made and (generation is None or generation.from_savepoint is None):
            raise _never_made(job, name)


def _never_made(job: Job, query: str) -> RefusedError:
    assert job.copy is not None and job.original is not None
    called = f"{job.original.name}@{job.copy.name}"
    return RefusedError(
        f"The copy {called} was never made: it holds no savepoint of query {query}.",
        code="copy-not-made",
        hint=f"Make it: `streambank fork {job.original.name} {job.copy.name}`.",
    )


def _redirect(job: Job, query: str, generation: Generation) -> Redirect:
    return Redirect(
        outputs=dict(generation.new_sinks),
        sources=job.drill.sources,
        folder=query_folder(query) if len(job.queries) > 1 else "",
    )


def check_declared(job: Job, control: JobControl, *, fresh_start: bool = False) -> None:
    """Make sure that a job's records are not lost, before anything is created among them.

    Raises:
        RefusedError: They are (code `repository-lost`), or a checkpoint belongs to another job
            (`checkpoint-of-another-job`); or what `check_made` refuses of a copy.
    """
    for name in job.queries:
        query = declared_query(job, name, control)
        lost = records_lost(query, settle=True)
        if lost is None:
            continue
        if job.copy is not None:
            check_made(job, control)  # a copy whose records are lost is made again, not begun from nothing
        if not fresh_start:
            raise lost
        check_acceptable(query)


def _accept(query: DeclaredQuery, *, by: Mapping[str, str], why: str, refused: str) -> None:
    """Leave behind, in the records and in the marker, that a person accepted that records are lost.

    The query goes on in the checkpoint that counted, where that is left; else it begins again.
    """
    was, left = check_acceptable(query), False
    generations = query.control.generations(query.name)
    if was is None:
        generation: Generation | None = generations.ensure_first(query.checkpoint, by=by)
    else:
        left = is_left(was)
        location = was.location if left else query.checkpoint
        generation = generations.adopt(query.checkpoint, location, above=was.generation, by=by)
    if generation is None:
        raise ConflictError(
            f"The generation of job {query.called} could not be recorded: somebody else has recorded one, or "
            f"{was.location if was else query.checkpoint} is not a generation of {query.checkpoint}.",
            code="generation-moved",
            hint="Try again, or declare the directory that was used last as the job's checkpoint.",
        )
    query.control.record_event(
        "fresh-start",
        query=query.name,
        generation=generation.number,
        by=dict(by),
        why=why,
        refused=refused,
        was=was.to_dict() if was is not None else None,
    )
    known = was.to_dict() if was is not None else {}
    marker = Marker(
        job=query.job,
        query=query.name,
        generation=generation.number,
        location=generation.location,
        control=records_root(query.control),
        repository=open_store(query.repository).uri if query.repository else None,
        repository_id=identity_of(query.repository) if query.repository else None,
        query_id=known.get("query_id") if left else None,  # it begins again with another one
        sink=known.get("sink"),
        sink_path=known.get("sink_path"),
        by=dict(by),
        accepted={
            "at": to_json_time(utc_now()),
            "by": dict(by),
            "why": why,
            "was": {**known, "accepted": None} if known else None,
        },
    )
    write_marker(query.checkpoint, marker)
