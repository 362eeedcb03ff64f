"""Verbs on the savepoints of a repository: `list`, `show`, `verify`, `pin`, `unpin`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli import console
from streambank.cli.options import (
    Debug,
    JobOption,
    Json,
    Master,
    MaxRate,
    On,
    Parallel,
    RepositoryOption,
    SavepointName,
    SparkConf,
    SparkProperties,
    Where,
    bytes_per_s,
)
from streambank.errors import InputError, NotFoundError

if TYPE_CHECKING:
    from streambank.savepoint.catalog import SavepointSummary
    from streambank.savepoint.executing import Executor
    from streambank.savepoint.repository import Repository
    from streambank.savepoint.verify import VerifyReport

LIST_EXAMPLES = """Examples:

  streambank list -r /data/savepoints --job orders

  streambank list -r /data/savepoints --expired
"""
VERIFY_EXAMPLES = """Examples:

  streambank verify b000041-5c0ffee5 -r /data/savepoints --level full

  streambank verify --all -r /data/savepoints --job orders --json

  streambank verify --all -r /data/savepoints --sample 10%
"""


class Level(StrEnum):
    """How deep a verification looks."""

    quick = "quick"
    full = "full"


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("list", epilog=LIST_EXAMPLES)(list_savepoints)
    app.command(epilog="Example: streambank show b000041 -r /data/savepoints")(show)
    app.command(epilog=VERIFY_EXAMPLES)(verify)
    app.command(epilog='Example: streambank pin b000041 -r /data/savepoints --note "before the upgrade"')(pin)
    app.command(epilog="Example: streambank unpin b000041 -r /data/savepoints")(unpin)


def open_repository(location: str) -> Repository:
    """The repository that is there."""
    from streambank.savepoint.repository import Repository
    from streambank.storage import open_store

    return Repository.open(open_store(location))


def list_savepoints(
    repository: RepositoryOption,
    job: JobOption = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="Those that undelete can bring back, and until when.")
    ] = False,
    grace: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --expired: the grace of your sweeps (24h).")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the savepoints of a repository, oldest first within each job."""
    if grace is not None and not expired:
        raise InputError("--grace goes with --expired.", code="usage", hint="See `streambank list --help`.")
    if expired:
        _list_expired(open_repository(repository), job, grace)
        return
    summaries = list(open_repository(repository).manifests(job))
    console.answer([summary.to_dict() for summary in summaries], lambda: _show_list(summaries))


def _list_expired(opened: Repository, job: str | None, grace: str | None) -> None:
    from streambank.retention.listing import expired_summaries
    from streambank.retention.sweep import DEFAULT_GRACE_S
    from streambank.times import parse_duration_s

    grace_s = DEFAULT_GRACE_S if grace is None else parse_duration_s(grace)
    found = [summary.to_dict() for summary in expired_summaries(opened.store, grace_s, job)]
    console.answer(found, lambda: _show_expired(found))


def _show_expired(found: list[dict[str, Any]]) -> None:
    if not found:
        console.line("No expired savepoints.")
        return
    rows = [
        (each["job"], each["savepoint"], each["batch"], _time(each["taken_at"]), console.size(each["bytes"]),
         _time(each["expired_at"]), _time(each["until"]) if each["until"] else "it is pinned",
         f"damaged: {each['error']}" if each["error"] else each["note"])
        for each in found
    ]  # fmt: skip
    columns = ("job", "savepoint", "batch", "taken at", "bytes", "expired at", "at least until", "note")
    console.table(columns, rows, right=("batch", "bytes"))


def _show_list(summaries: list[SavepointSummary]) -> None:
    if not summaries:
        console.line("No savepoints.")
        return
    rows = [
        (
            summary.job,
            summary.savepoint,
            summary.batch,
            _time(summary.to_dict()["taken_at"]),
            console.size(summary.bytes),
            console.size(summary.new_bytes),
            _verified(summary.to_dict()),
            "yes" if summary.pinned else "",
            f"damaged: {summary.error.message}" if summary.error else summary.note,
        )
        for summary in summaries
    ]
    columns = ("job", "savepoint", "batch", "taken at", "bytes", "new", "verified", "pinned", "note")
    console.table(columns, rows, right=("batch", "bytes", "new"))


def _time(text: str | None) -> str:
    return "" if text is None else text[:19].replace("T", " ") + "Z"


def _verified(summary: dict[str, Any]) -> str:
    if summary["verified_at"] is None:
        return "never"
    state = summary["verified_level"] if summary["verified_ok"] else "DAMAGED"
    since = summary["hashed_since"]
    whole = f", all since {_time(since)}" if since and summary["verified_level"] != "full" else ""
    return f"{state} {_time(summary['verified_at'])}{whole}"


def show(
    savepoint: SavepointName,
    repository: RepositoryOption,
    job: JobOption = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show one savepoint: what it holds, who took it and why. With --json the whole manifest."""
    opened = open_repository(repository)
    manifest = opened.load(*opened.find(savepoint, job))
    found = manifest.to_dict()
    console.answer(found, lambda: _show(found, opened.pinned(manifest.job, manifest.savepoint)))


def _show(found: dict[str, Any], pinned: bool) -> None:
    from streambank.times import from_epoch_ms, to_json_time

    stats, by = found["stats"], found["taken_by"]
    watermark = None if found["watermark_ms"] is None else from_epoch_ms(found["watermark_ms"])
    console.fields(
        [
            ("savepoint", found["savepoint"]),
            ("job", found["job"]),
            ("batch", found["batch"]),
            ("query id", found["query_id"]),
            ("taken at", _time(found["taken_at"])),
            ("taken by", ", ".join(f"{name} {value}" for name, value in by.items())),
            ("note", found["note"]),
            ("pinned", "yes" if pinned else ""),
            ("checkpoint", found["checkpoint"]),
            ("closure", found["closure"]),
            ("watermark", to_json_time(watermark) if watermark else None),
            ("spark version", found["spark_version"]),
            ("derived from", found["derived_from"]),
            ("files", f"{console.count(found['file_count'], 'file')}, {console.size(found['bytes'])}"),
            ("new", f"{console.size(stats.get('new_bytes'))}, {stats.get('new_files')} files read"),
        ]
    )
    rows = [
        (operator.get("operator"), operator.get("name"), store.get("store"), store.get("partitions"),
         store.get("rows"), console.size(store.get("bytes")))
        for operator in found["operators"]
        for store in operator.get("stores", ())
    ]  # fmt: skip
    if rows:
        console.line()
        columns = ("operator", "name", "store", "partitions", "rows", "bytes")
        console.table(columns, rows, right=("operator", "partitions", "rows", "bytes"))
    for sink in found["sinks"]:
        guarded = "guarded" if sink.get("guarded") else "not guarded: a restore cannot take it back"
        console.line(f"sink {sink.get('kind')} {sink.get('path')} ({guarded})")


def verify(
    repository: RepositoryOption,
    savepoint: Annotated[
        str | None, typer.Argument(metavar="[SAVEPOINT]", help="A savepoint's id, or its unique beginning.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Verify every savepoint (of the job).")] = False,
    level: Annotated[
        Level, typer.Option(help="quick: everything is there and has its size; full: every byte is hashed.")
    ] = Level.quick,
    job: JobOption = None,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="With --all: hash only this share, such as 10%, and the next one each time, "
            "so that 10 runs cover everything.",
        ),
    ] = None,
    parallel: Parallel = None,
    max_rate: MaxRate = None,
    on: On = Where.auto,
    master: Master = None,
    spark_conf: SparkConf = None,
    spark_properties: SparkProperties = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Verify a savepoint, or all of them: exit code 1 where something is wrong. The result is recorded."""
    if everything == (savepoint is not None):
        raise InputError(
            "Verify needs either a savepoint or --all.", code="usage", hint="See `streambank verify --help`."
        )
    if sample is not None and (not everything or level is not Level.quick or on is Where.spark):
        raise InputError(
            "--sample goes with --all, without --level and without --on spark: it hashes a share on this "
            "machine and looks at the rest.",
            code="usage",
            hint="See `streambank verify --help`.",
        )
    from streambank.cli.machines import executor
    from streambank.savepoint.catalog import require_any

    rate = bytes_per_s(max_rate)
    machines = executor(on, master, spark_conf, spark_properties, parallel, rate)
    opened = open_repository(repository)
    if everything and job is not None:
        require_any(opened.store, job)
    if sample is not None:
        _verify_sample(opened, sample, job, parallel, rate)
        return
    if savepoint is not None:
        reports = [_verify(opened, *opened.find(savepoint, job), level, machines, rate)]
        document: Any = reports[0].to_dict()
    else:
        which = [(each.job, each.savepoint) for each in opened.manifests(job)]
        found = (_verify_listed(opened, *each, level, machines, rate) for each in which)
        reports = [report for report in found if report is not None]
        document = _all(reports)
    console.answer(document, lambda: show_reports(reports))
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _verify_listed(
    opened: Repository, job: str, savepoint: str, level: Level, machines: Executor, rate: int | None
) -> VerifyReport | None:
    """One of many; None where it was expired since it was listed."""
    try:
        return _verify(opened, job, savepoint, level, machines, rate)
    except NotFoundError as error:
        if error.code != "no-such-savepoint":
            raise
        return None


def _all(reports: Sequence[VerifyReport]) -> dict[str, Any]:
    """The answer about several savepoints."""
    problems = [
        {"savepoint": report.savepoint, "job": report.job, **finding.to_dict()}
        for report in reports
        for finding in report.findings
    ]
    return {
        "ok": all(report.ok for report in reports),
        "findings": problems,
        "savepoints": [report.to_dict() for report in reports],
    }


def _verify_sample(
    opened: Repository, sample: str, job: str | None, parallel: int | None, rate: int | None
) -> None:
    from streambank.job.processes import who
    from streambank.savepoint.coverage import parse_share
    from streambank.savepoint.sampling import verify_sample

    with console.progress() as progress:
        found = verify_sample(
            opened,
            parse_share(sample),
            job=job,
            progress=progress,
            parallel=parallel,
            max_bytes_per_s=rate,
            by=who("cli"),
        )
    document = _all(found.savepoints)
    document["ok"] = document["ok"] and not found.findings
    document["findings"] += [
        {"savepoint": None, "job": None, **finding.to_dict()} for finding in found.findings
    ]
    document["sample"] = found.to_dict()

    def text() -> None:
        show_reports(found.savepoints)
        console.findings([finding.to_dict() for finding in found.findings])
        console.line(
            f"hashed {console.count(found.objects, 'object')} of {found.all_objects:,}, "
            f"{console.size(found.bytes)} of {console.size(found.all_bytes)}; "
            f"{console.count(found.runs, 'run')} like this cover everything"
        )

    console.answer(document, text)
    if not document["ok"]:
        raise typer.Exit(1)


def _verify(
    opened: Repository, job: str, savepoint: str, level: Level, machines: Executor, rate: int | None
) -> VerifyReport:
    from streambank.job.processes import who
    from streambank.savepoint.verify import verify as verify_savepoint

    with console.progress() as progress:
        return verify_savepoint(
            opened,
            job,
            savepoint,
            level.value,
            progress=progress,
            max_bytes_per_s=rate,
            executor=machines,
            by=who("cli"),
        )


def show_reports(reports: Sequence[VerifyReport]) -> None:
    """What verifications found, for people."""
    if not reports:
        console.line("No savepoints.")
    for report in reports:
        state = "ok" if report.ok else "findings" if report.restorable else "DAMAGED"
        looked = (
            f"{console.count(report.files, 'file')}, {console.size(report.bytes)}, {report.seconds:.1f} s"
        )
        console.line(f"{report.job} {report.savepoint}: {state} ({report.level}: {looked})")
        console.findings([finding.to_dict() for finding in report.findings])


def pin(
    savepoint: SavepointName,
    repository: RepositoryOption,
    job: JobOption = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Exempt a savepoint from retention until it is unpinned."""
    _set_pin(repository, savepoint, job, note, pinned=True)


def unpin(
    savepoint: SavepointName,
    repository: RepositoryOption,
    job: JobOption = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let retention decide about a savepoint again."""
    _set_pin(repository, savepoint, job, note, pinned=False)


def _set_pin(repository: str, savepoint: str, job: str | None, note: str, *, pinned: bool) -> None:
    from streambank.job.processes import who

    opened = open_repository(repository)
    which = opened.find(savepoint, job)
    change = opened.pin if pinned else opened.unpin
    change(*which, by=who("cli"), note=note)
    document = {"savepoint": which[1], "job": which[0], "pinned": pinned}
    console.answer(document, lambda: console.line(f"{which[1]} is {'pinned' if pinned else 'not pinned'}."))
