"""The verb `compact`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import OptionalJobsFile, job_named
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option
from streambank.core.verb_options import CompactOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streambank.compaction.compact import CompactionReport
    from streambank.compaction.undo import UndoReport
    from streambank.declaration.declaration import Job

EXAMPLES = """Examples:

  streambank compact --job orders --jobs streaming_jobs.toml --dry-run

  streambank compact /data/checkpoints/orders --stopped

  streambank compact /data/checkpoints/orders --undo /data/checkpoints/orders.quarantine-20261122-101500
"""
SHOWN = 40
"""So many files are shown one by one."""


def compact(
    options: CompactOptions,
    checkpoint: Annotated[
        str | None,
        Option(
            "The checkpoint directory of a job that is not declared.", metavar="[CHECKPOINT]", positional=True
        ),
    ] = None,
    job: Annotated[
        str | None, Option("A declared job, or job/query: its current checkpoint.", metavar="NAME")
    ] = None,
    jobs: OptionalJobsFile = None,
    quiet_s: Annotated[
        float,
        Option(
            "With --stopped and a CHECKPOINT: refuse if any file in it is younger than this (10m).",
            metavar="TIME",
        ),
    ] = 600.0,
    quarantine: Annotated[
        str | None,
        Option("Where dead files go; a sibling of the checkpoint by default.", metavar="LOCATION"),
    ] = None,
    undo: Annotated[
        str | None, Option("Bring everything back from this quarantine.", metavar="LOCATION")
    ] = None,
    purge: Annotated[str | None, Option("Delete this quarantine for good.", metavar="LOCATION")] = None,
) -> None:
    """Move files of a checkpoint that Spark will never read again into a quarantine."""
    _check_usage(checkpoint, job, undo, purge, quarantine, options.plan_only)
    declared = _declared(job, jobs) if job is not None else None
    if purge is not None:
        _purge(declared, purge)
        return
    if undo is not None:
        _undo(checkpoint, declared, undo, options.stopped, jobs)
        return
    if declared is not None:
        reports = _compact_job(declared, options, quarantine)
    else:
        assert checkpoint is not None
        if options.stopped and jobs is not None:
            _refuse_declared(checkpoint, jobs)
        reports = {"": _compact(checkpoint, options, quiet_s, quarantine)}
    console.answer(_document(reports), lambda: _show_all(reports))
    refused = [refusal for report in reports.values() for refusal in report.refusals]
    if refused:  # of a dry run
        raise typer.Exit(refused[0].exit_code)


def _check_usage(
    checkpoint: str | None,
    job: str | None,
    undo: str | None,
    purge: str | None,
    quarantine: str | None,
    dry_run: bool,
) -> None:
    wrong = ""
    if purge is None and (checkpoint is None) == (job is None):
        wrong = "Give either a CHECKPOINT or --job NAME."
    elif undo is not None and purge is not None:
        wrong = "Give either --undo or --purge."
    elif (undo is not None or purge is not None) and (dry_run or quarantine is not None):
        wrong = "--dry-run and --quarantine cannot be combined with --undo or --purge."
    if wrong:
        raise InputError(wrong, code="usage", hint="See `streambank compact --help`.")


def _declared(job: str, jobs: str | None) -> tuple[Job, str | None]:
    from streambank.core.names import QueryRef

    if jobs is None:
        raise InputError(
            f"--job {job} needs the jobs file that declares it.",
            code="no-declaration",
            hint="Give --jobs FILE, or set STREAMBANK_JOBS.",
        )
    asked = QueryRef.parse(job)
    return job_named(asked.job, jobs), asked.query


def _refuse_declared(checkpoint: str, jobs: str) -> None:
    """Refuse to take somebody's word for what the records of a job know.

    Raises:
        InputError: The checkpoint is that of a declared job (code `declared-checkpoint`).
    """
    from streambank.declaration.load import load_jobs
    from streambank.storage import is_inside

    for each in load_jobs(jobs).jobs.values():
        for query, name in zip(each.query_names, each.queries, strict=True):
            generation = each.records().generation(query)
            place = generation.location if generation is not None else each.queries[name]
            if is_inside(checkpoint, place) and is_inside(place, checkpoint):
                raise InputError(
                    f"{checkpoint} is the checkpoint of job {each.savepoint_name(query)}. The job's lease "
                    "shows whether it runs, so --stopped is not enough.",
                    code="declared-checkpoint",
                    hint=f"Give --job {each.savepoint_name(query)} instead.",
                )


def _compact(
    checkpoint: str, options: CompactOptions, quiet_s: float, quarantine: str | None
) -> CompactionReport:
    from streambank.compaction import quiet_check
    from streambank.compaction.compact import CompactionRequest, plan
    from streambank.compaction.compact import compact as compact_checkpoint
    from streambank.compaction.quarantine import quarantine_location
    from streambank.control.processes import who
    from streambank.storage import normalize_location, open_store

    store = open_store(checkpoint)
    request = CompactionRequest(
        stopped=options.stopped,
        keep_batches=options.keep_batches,
        older_than_s=options.older_than_s,
        watch=quiet_check.QuietCheck(quiet_s=quiet_s, watch_s=quiet_check.WATCH_S),
        by=who("cli"),
    )
    if options.plan_only:
        return plan(store, request)
    place = quarantine or quarantine_location(normalize_location(checkpoint), _label())
    with console.progress() as progress:
        return compact_checkpoint(store, open_store(place), request, progress=progress)


def _compact_job(
    declared: tuple[Job, str | None], options: CompactOptions, quarantine: str | None
) -> dict[str, CompactionReport]:
    from streambank.compaction.job import compact_job
    from streambank.control.processes import who

    job, query = declared
    with console.progress() as progress:
        return compact_job(
            job,
            options,
            query=query,
            label=_label(),
            by=who("cli"),
            quarantine=quarantine,
            progress=progress,
        )


def _undo(
    checkpoint: str | None,
    declared: tuple[Job, str | None] | None,
    place: str,
    stopped: bool,
    jobs: str | None,
) -> None:
    from streambank.compaction.job import undo_job
    from streambank.compaction.quarantine import Quarantine
    from streambank.compaction.undo import bring_back
    from streambank.control.processes import who
    from streambank.storage import open_store

    with console.progress() as progress:
        if declared is not None:
            report = undo_job(declared[0], place, by=who("cli"), progress=progress)
        else:
            assert checkpoint is not None
            store, quarantine = open_store(checkpoint), Quarantine(open_store(place))
            if quarantine.existing().mode == "stopped":
                _check_stopped(checkpoint, stopped, jobs)
            report = bring_back(store, quarantine, check=lambda: None, progress=progress)
    console.answer(report.to_dict(), lambda: _show_undone(report))
    if report.missing:
        raise typer.Exit(1)


def _check_stopped(checkpoint: str, stopped: bool, jobs: str | None) -> None:
    """Make sure, as far as that goes, that a query does not run to which files are to come back."""
    from streambank.checkpoint.reader import CheckpointReader
    from streambank.compaction import quiet_check
    from streambank.storage import open_store

    if not stopped:
        raise InputError(
            f"An undo needs --stopped, since the query of {checkpoint} may run.",
            code="usage",
            hint="Stop it, and give --stopped.",
        )
    if jobs is not None:
        _refuse_declared(checkpoint, jobs)
    store = open_store(checkpoint)
    quiet_check.check_still(
        store, CheckpointReader(store).listing(), quiet_check.QuietCheck(watch_s=quiet_check.WATCH_S)
    )


def _purge(declared: tuple[Job, str | None] | None, place: str) -> None:
    from streambank.compaction.job import purge_job
    from streambank.compaction.purge import purge
    from streambank.compaction.quarantine import Quarantine
    from streambank.control.processes import who
    from streambank.storage import open_store

    with console.progress() as progress:
        if declared is not None:
            report = purge_job(declared[0], place, by=who("cli"), progress=progress)
        else:
            report = purge(Quarantine(open_store(place)), progress=progress)
    found = f"{console.count(report.files, 'file')}, {console.size(report.bytes)}"
    console.answer(report.to_dict(), lambda: console.line(f"deleted for good: {found}"))


def _label() -> str:
    from streambank.core.units import utc_now

    return utc_now().strftime("%Y%m%d-%H%M%S")


def _document(reports: Mapping[str, CompactionReport]) -> dict[str, Any]:
    if len(reports) == 1:
        return next(iter(reports.values())).to_dict()
    return {"queries": {name: report.to_dict() for name, report in reports.items()}}


def _show_all(reports: Mapping[str, CompactionReport]) -> None:
    for report in reports.values():
        _show(report.to_dict())


def _show(done: dict[str, Any]) -> None:
    would = "would be " if done["dry_run"] else ""
    console.fields(
        [
            ("checkpoint", done["checkpoint"]),
            ("job", done["job"]),
            (
                "query",
                "may be running: only unfinished writes are moved"
                if done["mode"] == "running"
                else "stopped",
            ),
            ("batches kept", ", ".join(str(batch) for batch in done["kept_batches"])),
        ]
    )
    if done["moved"]:
        rows = [(one["path"], console.size(one["bytes"]), one["reason"]) for one in done["moved"][:SHOWN]]
        console.table(("file", "size", "reason"), rows, right=("size",))
        if len(done["moved"]) > SHOWN:
            console.line(f"... and {len(done['moved']) - SHOWN} more; --json lists all.")
        console.table(
            ("reason", "files", "size", "why"),
            [
                (one["reason"], one["files"], console.size(one["bytes"]), one["why"])
                for one in done["reasons"]
            ],
            right=("files", "size"),
        )
    for refusal in done["refusals"]:
        console.line(f"refused: {refusal['message']}")
        if refusal["hint"]:
            console.line(f"  hint: {refusal['hint']}")
    for note in done["notes"]:
        console.line(f"note: {note}")
    won = f"{console.count(done['files'], 'file')}, {console.size(done['bytes'])}"
    if not done["files"]:
        console.line("There are no dead files.")
    elif done["already_done"]:
        console.line(f"Moved before: {won}, into {done['quarantine']}")
    else:
        stay = f"{console.count(done['kept_files'], 'file')}, {console.size(done['kept_bytes'])}"
        console.line(f"{would}moved: {won}; {stay} stay; {done['seconds']:.1f} s")
        if done["quarantine"]:
            console.line(f"quarantine: {done['quarantine']}")


def _show_undone(report: UndoReport) -> None:
    console.line(f"brought back: {console.count(report.files, 'file')}, {console.size(report.bytes)}")
    for path in report.left:
        console.line(f"left in {report.quarantine}: {path}, because another file has its name now")
    for path in report.missing:
        console.line(f"missing: {path}")


VERBS = {"compact": (compact, EXAMPLES)}
