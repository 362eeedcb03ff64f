"""Verbs that end savepoints and bring them back: `expire`, `undelete`, `undelete-files`, `sweep`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import JobOption, RepositoryOption, jobs_option, open_repository
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option
from streambank.core.verb_options import ExpireOptions, SweepOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from streambank.repository.catalog import SavepointSummary
    from streambank.repository.repository import Repository
    from streambank.retention.expire import ExpireReport, OthersOf
    from streambank.retention.policy import Policy
    from streambank.retention.sweep import SweepReport, Tally
    from streambank.retention.undelete_files import UndeleteFilesReport
    from streambank.sinks.tags import TagReport

EXPIRE_EXAMPLES = """Examples:

  streambank expire -r /data/savepoints --job orders --keep-last 10 --keep-daily 7 --dry-run

  streambank expire -r /data/savepoints --max-age 90d

  streambank expire -r /data/savepoints --jobs streaming_jobs.toml
"""
UNDELETE_FILES_EXAMPLES = """Examples:

  streambank undelete-files -r s3://lake/savepoints --since 2026-11-21T02:00:00Z

  streambank undelete-files -r s3://lake/savepoints --since 2026-11-21T02:00:00Z --execute
"""
_MOST_SHOWN = 20


def expire(
    repository: RepositoryOption,
    options: ExpireOptions,
    job: JobOption = None,
    jobs: Annotated[
        str | None,
        jobs_option(
            "If no rule is given here: the file that declares the rules. Tags in Iceberg of savepoints "
            "that are gone are removed from tables that it declares."
        ),
    ] = None,
    replica_of: Annotated[
        str | None,
        Option(
            "The repository that this is a replica of. What that one lists stays, unless it is too old. "
            "--jobs then uses the rules for replicas.",
            metavar="LOCATION",
        ),
    ] = None,
) -> None:
    """Drop savepoints that a policy does not keep from the list; `undelete` brings them back for a while."""
    from streambank.control.processes import who
    from streambank.core.zones import check_time_zone
    from streambank.retention.expire import expire as expire_savepoints
    from streambank.retention.policy import Policy, policy_of

    if options.time_zone is not None:
        check_time_zone(options.time_zone)
    given = policy_of(options)
    policy: Policy | Callable[[str], Policy | None]
    if given is not None:
        by_clocks = jobs is not None and options.time_zone is None and given.goes_by_calendar
        policy = _by_declared_clocks(jobs, given) if jobs is not None and by_clocks else given
    elif jobs is not None:
        policy = _declared(jobs, job, options, of_replicas=replica_of is not None)
    else:
        policy = Policy().check()
    opened = open_repository(repository)
    source = open_repository(replica_of) if replica_of is not None else None
    with console.progress() as progress:
        report = expire_savepoints(
            opened,
            policy,
            job=job,
            dry_run=options.plan_only,
            by=who("cli"),
            source=source,
            others=_others(jobs),
            progress=progress,
        )
    tags = [] if options.plan_only or jobs is None else _settle_tags(jobs, job, source or opened)
    answer = {**report.to_dict(), "sink_tags": [one.to_dict() for one in tags]}
    console.answer(answer, lambda: _show_expired(report, tags))
    if report.unreadable:
        raise typer.Exit(1)


def _settle_tags(
    file: str, job: str | None, repository: Repository, *, ensure: Mapping[str, str] | None = None
) -> list[TagReport]:
    """Bring the tags in Iceberg up to date of each declared job of this repository."""
    from streambank.core.names import QueryRef
    from streambank.declaration.load import load_jobs
    from streambank.storage import same_place

    name = QueryRef.parse(job).job if job is not None else None
    return [
        report
        for each in load_jobs(file).jobs.values()
        if each.sinks and name in (None, each.name)
        if same_place(each.repository, repository.store.uri)
        for report in each.settle_tags(repository, ensure=ensure)
    ]


def _declared(
    file: str, job: str | None, options: ExpireOptions, *, of_replicas: bool
) -> Callable[[str], Policy | None]:
    """The policies of a jobs file, by the name of a savepoint's job.

    Raises:
        InputError: The job declares none, or no job does (code `empty-policy`).
        NotFoundError: The job is not declared (code `no-such-job`).
    """
    from dataclasses import replace

    from streambank.core.names import QueryRef
    from streambank.declaration.load import load_jobs

    declared = load_jobs(file)
    policies: dict[str, Policy] = {}
    for each in declared.jobs.values():
        policy = each.replicate.retention if of_replicas else each.retention
        if policy is not None:
            policies[each.name] = policy
    name = QueryRef.parse(job).job if job is not None else None
    if name is not None:
        declared.job(name)
    if (name is not None and name not in policies) or not policies:
        table = "replicate.retention" if of_replicas else "retention"
        raise InputError(
            f"{file} declares no {table}{f' of the job {name}' if name else ''}.",
            code="empty-policy",
            hint=f"Add [jobs.NAME.{table}] with rules such as keep_last = 10, or give --keep-last 10.",
        )
    given: dict[str, Any] = {"min_verified": options.min_verified, "time_zone": options.time_zone}
    given = {name: value for name, value in given.items() if value is not None}
    policies = {each: replace(policy, **given) for each, policy in policies.items()}
    return lambda of: policies.get(QueryRef.parse(of).job)


def _others(file: str | None) -> OthersOf:
    """Which savepoints are of other lines than those that a jobs file declares; none without one."""
    from streambank.core.names import QueryRef
    from streambank.declaration.load import load_jobs
    from streambank.sites.forks import others_among

    declared = {} if file is None else load_jobs(file).jobs

    def others(name: str, saved: Sequence[SavepointSummary]) -> set[str]:
        job = declared.get(QueryRef.parse(name).job)
        return others_among(None if job is None else job.records(), name, saved)

    return others


def _by_declared_clocks(file: str, policy: Policy) -> Callable[[str], Policy]:
    """One policy for all jobs, by the name of a savepoint's job: each by the clocks of its own time zone."""
    from dataclasses import replace

    from streambank.core.names import QueryRef
    from streambank.core.zones import UTC_NAME
    from streambank.declaration.load import load_jobs

    zones = {job.name: job.time_zone or UTC_NAME for job in load_jobs(file).jobs.values()}
    return lambda of: replace(policy, time_zone=zones.get(QueryRef.parse(of).job, UTC_NAME))


def _show_expired(report: ExpireReport, tags: Sequence[TagReport]) -> None:
    _show_tags(tags)
    if not report.decisions:
        console.line("No savepoints.")
        return
    rows = []
    for decision in report.decisions:
        found = decision.to_dict()
        reasons = "; ".join(f"{reason.rule}: {reason.why}" for reason in decision.reasons)
        taken_at = (found["taken_at"] or "")[:19].replace("T", " ")
        verdict = "keep" if decision.keep else "would drop" if report.dry_run else "dropped"
        rows.append((found["job"], found["savepoint"], taken_at, verdict, reasons))
    console.table(("job", "savepoint", "taken at (UTC)", "verdict", "why"), rows, drop=("taken at (UTC)",))
    for warning in report.warnings:
        console.line(f"WARNING: {warning}")
    kept = len(report.decisions) - len(report.dropped)
    dropped = console.count(len(report.dropped), "savepoint")
    if report.dry_run:
        console.line(f"{kept} kept, {dropped} would be dropped. Nothing was changed.")
    elif not report.dropped:
        console.line(f"{kept} kept, none dropped.")
    else:
        console.line(f"{kept} kept, {dropped} dropped: `streambank undelete` brings them back for a while.")


def _show_tags(tags: Sequence[TagReport]) -> None:
    for one in tags:
        if one.removed:
            gone = console.count(len(one.removed), "tag")
            console.line(f"{gone} of savepoints that are gone removed from {one.table}.")
        if one.added:
            console.line(f"{console.count(len(one.added), 'tag')} put back on {one.table}.")
        for warning in one.warnings:
            console.line(f"WARNING: {warning}")


def undelete(
    savepoint: Annotated[
        str,
        Option("An expired savepoint's id, or its unique beginning.", metavar="SAVEPOINT", positional=True),
    ],
    repository: RepositoryOption,
    job: JobOption = None,
    jobs: Annotated[
        str | None,
        jobs_option("The file that declares the job's sinks: the savepoint's tag in Iceberg is put back."),
    ] = None,
) -> None:
    """Bring an expired savepoint back. Possible until a sweep finds it older than its grace."""
    from streambank.control.processes import who
    from streambank.retention.undelete import undelete as bring_back

    opened = open_repository(repository)
    result = bring_back(opened, savepoint, job, by=who("cli"))
    state = "was listed already" if result.already_listed else "is listed again"
    back = {result.job: result.savepoint}
    tags = [] if jobs is None else _settle_tags(jobs, result.job, opened, ensure=back)

    def text() -> None:
        console.line(f"{result.savepoint} of {result.job} {state}.")
        _show_tags(tags)

    console.answer({**result.to_dict(), "sink_tags": [one.to_dict() for one in tags]}, text)


def undelete_files(
    repository: RepositoryOption,
    since: Annotated[
        str | None,
        Option(
            "Only what was deleted then or later: a time with its zone (2026-11-21T02:00:00Z), or how "
            "long ago (36h).",
            metavar="TIME",
        ),
    ] = None,
    execute: Annotated[bool, Option("Bring it back. Without it, only show what would come back.")] = False,
) -> None:
    """Bring back what was deleted in an S3 bucket with versions or Object Lock, such as by ransomware.

    Only delete markers are removed. Without --execute nothing is changed.
    """
    from streambank.retention.undelete_files import undelete_files as bring_back
    from streambank.storage import open_store

    moment = None if since is None else _moment(since)
    with console.progress() as progress:
        report = bring_back(open_store(repository), since=moment, dry_run=not execute, progress=progress)
    console.answer(report.to_dict(), lambda: _show_undeleted(report))


def _moment(text: str) -> datetime:
    """A time as `--since` gives it.

    Raises:
        InputError: It is neither a time with a zone nor a duration (code `bad-time`).
    """
    from datetime import timedelta

    from streambank.core.units import from_json_time, parse_duration_s, utc_now

    try:
        return from_json_time(text)
    except ValueError:
        pass
    try:
        return utc_now() - timedelta(seconds=parse_duration_s(text))
    except (InputError, OverflowError) as error:
        raise InputError(
            f"--since {text[:40]!r} is neither a time with a time zone nor a duration.",
            code="bad-time",
            hint="Write it as 2026-11-21T02:00:00Z, or how long ago: 36h.",
        ) from error


def _show_undeleted(report: UndeleteFilesReport) -> None:
    if not report.files:
        console.line("No file that was deleted can come back.")
    else:
        would = "would come back" if report.dry_run else "came back"
        names = sorted(report.savepoints)
        for name in names[:_MOST_SHOWN]:
            console.line(f"{would}: savepoint {name}")
        if len(names) > _MOST_SHOWN:
            console.line(f"{would}: {len(names) - _MOST_SHOWN} more savepoints")
        rows = [(f"{day:%Y-%m-%d}", files) for day, files in sorted(report.days.items())]
        console.table(("deleted on (UTC)", "files"), rows)
        console.line(
            f"{console.count(report.files, 'file')} ({console.size(report.bytes)}), "
            f"{console.count(len(names), 'savepoint')} among them, deleted from "
            f"{report.first_deleted_at:%Y-%m-%d %H:%M:%S} to {report.last_deleted_at:%Y-%m-%d %H:%M:%S} UTC "
            f"{would}."
        )
    if report.dry_run and report.files:
        console.line(
            "Nothing was changed. --execute brings them back; --since leaves out what was deleted before."
        )
    elif report.indexed_packs is not None:
        console.line(f"The index names {console.count(report.indexed_packs, 'pack')}.")
        console.line("`streambank verify --all` says which savepoints are whole.")


def sweep(repository: RepositoryOption, options: SweepOptions) -> None:
    """Delete what no savepoint needs: pending delete first, deleted by a later sweep after the grace."""
    from streambank.control.processes import who
    from streambank.retention.sweep import sweep as sweep_repository

    opened = open_repository(repository)
    grace_s, dry_run = options.grace_s, options.plan_only
    with console.progress() as progress:
        report = sweep_repository(opened, grace_s=grace_s, dry_run=dry_run, by=who("cli"), progress=progress)
    console.answer(report.to_dict(), lambda: _show_swept(report))
    if report.left:
        raise typer.Exit(1)


def _show_swept(report: SweepReport) -> None:
    would = "would be " if report.dry_run else ""
    if report.removed:
        names = ", ".join(f"{copy.job}/{copy.savepoint}" for copy in report.removed)
        console.line(f"Can no longer be brought back: {names}.")
    console.fields(
        [
            (f"{would}deleted", _files(report.deleted)),
            (f"{would}pending delete", _files(report.condemned)),
            ("pending delete before", _files(report.waiting)),
            ("kept", _files(report.kept)),
            ("of these locked", _locked(report) if report.locked_until is not None else ""),
            ("of these held", _files(report.held) if report.held.files else ""),
            ("stored again", _rescued(report)),
            (f"{would}deleted of broken writes", _leftovers(report)),
            ("next deletion", "" if report.next_s is None else f"in {console.age(report.next_s)} or later"),
        ]
    )
    if report.expired:
        rows: list[tuple[Any, ...]] = [
            (copy.job, copy.savepoint, console.age(left_s)) for copy, left_s in report.expired
        ]
        console.table(("job", "expired savepoint", "can be undeleted for"), rows)
    for leftover in report.leftovers if report.dry_run else ():
        console.line(f"left by a broken write: {leftover.key}, {console.size(leftover.size_bytes)}")
    for warning in report.warnings:
        console.line(f"warning: {warning}")
    for hold in report.holds:
        console.line(
            f"held: {hold.savepoint} of {hold.job}, {hold.holder}; {console.age(hold.left_s)} "
            f"unless it is renewed"
        )
    for key, error in sorted(report.left.items()):
        console.line(f"left: {key}: {error.message}")


def _locked(report: SweepReport) -> str:
    """Unused files that are locked, and when the last lock ends."""
    return f"{_files(report.locked)}, until {report.locked_until:%Y-%m-%d %H:%M} UTC"


def _files(tally: Tally) -> str:
    return f"{console.count(tally.files, 'file')}, {console.size(tally.bytes)}" if tally.files else "nothing"


def _rescued(report: SweepReport) -> str:
    rescued = report.rescued
    return (
        f"{console.count(rescued.objects, 'object')}, {console.size(rescued.bytes)}"
        if rescued.objects
        else ""
    )


def _leftovers(report: SweepReport) -> str:
    if not report.leftovers:
        return ""
    return f"{console.count(len(report.leftovers), 'file')}, {console.size(report.leftover_bytes)}"


VERBS = {
    "expire": (expire, EXPIRE_EXAMPLES),
    "undelete": (undelete, "Example: streambank undelete b000041 -r /data/savepoints"),
    "undelete-files": (undelete_files, UNDELETE_FILES_EXAMPLES),
    "sweep": (sweep, "Example: streambank sweep -r /data/savepoints --dry-run"),
}
