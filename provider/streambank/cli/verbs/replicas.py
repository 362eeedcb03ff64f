"""Verbs on several repositories of the same savepoints: `replicate`, `repair`, `status`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import (
    JobOption,
    LockOptions,
    RepositoryOption,
    SparkJobsFile,
    WorkOptions,
    declared_job,
    open_repository,
    with_progress,
    zone_of,
)
from streambank.cli.output import console
from streambank.cli.verbs.verify import show_reports
from streambank.core.errors import InputError, NotFoundError
from streambank.core.options import Option

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.replicas.repair import RepairReport
    from streambank.replicas.replicate import ReplicaReport

REPLICATE_EXAMPLES = """Examples:

  streambank replicate -r /data/savepoints --to s3://backups/streambank

  streambank replicate b000041 -r /data/savepoints --to /mnt/other --to s3://backups/streambank
"""
REPAIR_EXAMPLES = """Examples:

  streambank repair -r /data/savepoints --from s3://backups/streambank --dry-run

  streambank repair b000041 -r /data/savepoints --from s3://backups/streambank
"""
STATUS_EXAMPLE = "Example: streambank status -r /data/savepoints --replica s3://backups/streambank --cost"

STATES = {
    "copied": "copied",
    "there": "was there",
    "refilled": "was there, and what it had lost was copied again",
    "failed": "NOT replicated",
    "gone": "was deleted meanwhile",
}
"""What became of a savepoint, for people."""

OptionalName = Annotated[
    str | None,
    Option("Only this one: its id, or its unique beginning.", metavar="[SAVEPOINT]", positional=True),
]


def replicate(
    repository: RepositoryOption,
    locked: LockOptions,
    work: WorkOptions,
    to: Annotated[
        tuple[str, ...],
        Option("The replica; created if it does not exist.", metavar="LOCATION"),
    ],
    savepoint: OptionalName = None,
    job: JobOption = None,
    jobs: SparkJobsFile = None,
) -> None:
    """Copy savepoints to other repositories. Only what is missing is copied, and every byte is hashed.

    Exit code 1 if a savepoint is damaged and could not be copied. The others are copied anyway.
    """
    from streambank.control.processes import who
    from streambank.replicas.replicate import newest_first, replicate_to
    from streambank.repository.catalog import require_any
    from streambank.storage import open_store

    def declared() -> Job | None:
        return None if savepoint is None and job is None else declared_job(which[0][0], jobs)

    pace = work.pace(declared, alone=False)
    lock = locked.policy()
    source = open_repository(repository)
    if job is not None:
        require_any(source.store, job)
    which = [source.find(savepoint, job)] if savepoint is not None else newest_first(source, job)
    reports = []
    for location in to:
        with with_progress(pace) as shown:
            by = who("cli")
            reports.append(replicate_to(source, open_store, location, which, pace=shown, by=by, lock=lock))
    document = {
        "ok": all(report.ok for report in reports),
        "repository": source.store.uri,
        "replicas": [report.to_dict() for report in reports],
    }
    console.answer(document, lambda: _show_replicas(reports))
    if not document["ok"]:
        errors = [report.error for report in reports if report.error is not None]
        raise typer.Exit(errors[0].exit_code if errors else 1)


def _show_replicas(reports: list[ReplicaReport]) -> None:
    for report in reports:
        found = report.to_dict()
        service = f", {console.size(found['service_bytes'])} of them by the service"
        console.line(
            f"{report.location}: {console.count(len(report.savepoints), 'savepoint')}, "
            f"{console.size(found['moved_bytes'])} moved{service if found['service_bytes'] else ''}, "
            f"{console.size(found['there_bytes'])} were there; {report.seconds:.1f} s"
        )
        for each in report.savepoints:
            if each.state != "there" or each.errors:
                pinned = ", pinned" if each.pinned else ""
                console.line(f"  {each.job} {each.savepoint}: {STATES[each.state]}{pinned}")
            for file, error in each.errors:
                console.line(f"    {file}: {error.message}")
        for warning in report.warnings:
            console.line(f"  warning: {warning}")
        if report.error is not None:
            console.line(f"  ended early: {report.error.message}")
            if report.error.hint:
                console.line(f"  hint: {report.error.hint}")


def repair(
    repository: RepositoryOption,
    locked: LockOptions,
    work: WorkOptions,
    sources: Annotated[
        tuple[str, ...],
        Option("A replica to copy undamaged data from.", flag="--from", metavar="LOCATION"),
    ],
    savepoint: OptionalName = None,
    job: JobOption = None,
    dry_run: Annotated[bool, Option("Read everything, but only show what would be repaired.")] = False,
    jobs: SparkJobsFile = None,
) -> None:
    """Copy what is damaged or missing from a replica that has it undamaged, then verify what was repaired.

    Exit code 1 if something stays damaged; with --dry-run, if anything is.
    """
    from streambank.control.processes import who
    from streambank.replicas.header_repair import open_for_repair
    from streambank.replicas.repair import repair as repair_repository
    from streambank.repository.catalog import listed
    from streambank.repository.references import find
    from streambank.storage import open_store

    def declared() -> Job | None:
        return None if savepoint is None and job is None else declared_job(which[0][0], jobs)

    pace = work.pace(declared, alone=False)
    replicas = [open_repository(location) for location in sources]
    store = open_store(repository)
    opened, header_error = open_for_repair(store, dry_run=dry_run, lock=locked.policy())
    try:
        which = (
            [find(store, savepoint, job, zone_of=zone_of)] if savepoint is not None else listed(store, job)
        )
    except NotFoundError as error:
        raise NotFoundError(
            error.message,
            code="no-such-savepoint",
            hint="A savepoint that the repository does not list is missing, not damaged: `streambank "
            "replicate` from the replica brings it back.",
        ) from error
    with with_progress(pace) as shown:
        report = repair_repository(
            opened,
            replicas,
            which,
            header_error=header_error,
            dry_run=dry_run,
            pace=shown,
            by=who("cli"),
        )
    console.answer(report.to_dict(), lambda: _show_repair(report))
    if not report.ok or (dry_run and report.repaired):
        raise typer.Exit(1)


def _show_repair(report: RepairReport) -> None:
    if not report.repaired and not report.not_repaired:
        console.line("Nothing is damaged.")
    would = "would be repaired" if report.dry_run else "repaired"
    for each in report.repaired:
        origin = f" from {', '.join(each.sources)}" if each.sources else ""
        counted = f" ({console.count(each.objects, 'object')}, {console.size(each.bytes)})"
        console.line(f"{would}: {each.file}{counted if each.objects else ''}{origin}")
    for lost in report.not_repaired:
        console.line(f"NOT repaired: {lost.file}: {lost.cause}")
        console.line(f"  why: {lost.reason}")
        console.line(f"  needed by: {', '.join(lost.needed_by)}")
    if report.verified:
        show_reports(report.verified)


def status(
    repository: RepositoryOption,
    replica: Annotated[
        tuple[str, ...],
        Option("A replica of the repository.", metavar="LOCATION"),
    ] = (),
    cost: Annotated[bool, Option("Show what storing it costs per month.")] = False,
    prices: Annotated[
        Path | None,
        Option("A TOML file with prices per GB and month, for --cost.", metavar="FILE"),
    ] = None,
) -> None:
    """Show how current each repository is: per job the newest savepoint, the newest verified one and its age.

    Exit code 1 if a repository, or a savepoint in it, cannot be read.
    """
    from streambank.core.units import utc_now
    from streambank.replicas.prices import Prices, load_prices
    from streambank.replicas.status import status as look
    from streambank.storage import open_store

    if prices is not None and not cost:
        raise InputError("--prices needs --cost.", code="usage", hint="See `streambank status --help`.")
    table = (load_prices(prices) if prices is not None else Prices()) if cost else None
    document = look(open_store, repository, replica, utc_now()).to_dict(table)
    console.answer(document, lambda: _show_status(document, cost=cost))
    if not document["ok"]:
        raise typer.Exit(1)


def _show_status(document: dict[str, Any], *, cost: bool) -> None:
    rows = []
    notes = []
    for place in document["places"]:
        location, currency = place["location"], document["currency"]
        if place["error"] is not None:
            rows.append((location, "", *[""] * 8, f"cannot be read: {place['error']['message']}"))
            notes.append(f"hint: {place['error']['hint']}")
            continue
        if not place["jobs"]:
            rows.append((location, "", *[""] * 8, "no savepoints"))
        for job in place["jobs"]:
            newest, verified = job["newest"], job["newest_verified"]
            lacking = [f"{job['lacking']} not here"] if job["lacking"] else []
            damaged = [f"{len(job['damaged'])} damaged"] if job["damaged"] else []
            rows.append(
                (location, job["job"], job["count"],
                 newest and newest["batch"], newest and newest["savepoint"],
                 verified and verified["batch"], console.age(verified["age_s"]) if verified else "none",
                 console.size(job["alone_bytes"]), console.size(job["shared_bytes"]),
                 _money(currency, job["alone_cost_month"]), ", ".join([*lacking, *damaged]))
            )  # fmt: skip
        if cost:
            price = _money(currency, place["cost_month"])
            notes.append(
                f"{location}: {console.size(place['stored_bytes'])} stored, "
                f"{f'{price} a month' if price else 'no price for this storage'}"
            )
    columns = ["location", "job", "count", "batch", "newest", "verified", "age", "alone", "shared"]
    columns += ["a month", "note"]
    if not cost:
        rows = [(*row[:9], row[10]) for row in rows]
        columns.remove("a month")
    numbers = ("count", "batch", "verified", "age", "alone", "shared", "a month")
    drop = ("shared", "alone", "note", "count", "batch", *(("a month",) if cost else ()), "age")
    console.table(columns, rows, right=numbers, drop=drop)
    for text in notes:
        console.line(text)


def _money(currency: str | None, value: float | None) -> str:
    """Two digits after the point, or more where there would be nothing else."""
    if value is None:
        return ""
    return f"{currency}{value:.2f}" if value >= 0.01 or value == 0 else f"{currency}{value:.6f}"


VERBS = {
    "replicate": (replicate, REPLICATE_EXAMPLES),
    "repair": (repair, REPAIR_EXAMPLES),
    "status": (status, STATUS_EXAMPLE),
}
