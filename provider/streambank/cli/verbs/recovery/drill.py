"""The verb `drill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import Debug, JobsFile, Json, job_named
from streambank.cli.output import console
from streambank.core.errors import InputError

if TYPE_CHECKING:
    from streambank.control.records import JsonDict
    from streambank.declaration.declaration import Job
    from streambank.drills.each import RoundReport
    from streambank.drills.report import DrillReport

EXAMPLES = """Examples:

  streambank drill orders --jobs dags/streaming_jobs.toml

  streambank drill orders --from s3://replica/savepoints --savepoint random --batches 5

  streambank drill orders --savepoint each --limit 10

  streambank drill orders --savepoint each --time-limit 2h

  streambank drill orders --history
"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=EXAMPLES)(drill)


def drill(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job that the jobs file declares.")],
    jobs: JobsFile,
    savepoint: Annotated[
        str | None,
        typer.Option(
            metavar="SAVEPOINT|latest-good|random|each",
            help="What is restored: random is any savepoint that is kept, each is all of them, one after "
            "the other. Default: what the job declares.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="With each: at most the newest N savepoints; 0 is all of them."
        ),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="With each: begin no more drills after this long, such as 2h; the next round with a limit "
            "goes on with the savepoints that are left. 0s is no limit.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="DIR", help="Restore from this replica instead of the repository."),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(min=0, help="How many batches of the live query are executed again and compared."),
    ] = None,
    scratch: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Under which directory the copy is written; it is removed again."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the copy, for a look.")] = False,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long the application may take, such as 30m; with each, for each one.",
        ),
    ] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the job's records.")] = "",
    history: Annotated[
        bool, typer.Option("--history", help="Show the drills of the job instead, the newest first.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Rehearse a restore on a copy, with the job's own application, beside the running job.

    Nothing of the live job is touched: its checkpoint, outputs, source positions and records are only read.
    Exit code 1: the drill failed.
    """
    from streambank.control.processes import who
    from streambank.core.units import parse_duration_s
    from streambank.drills.drill import drill as run
    from streambank.drills.each import drill_each
    from streambank.drills.request import DrillRequest

    declared = job_named(job, jobs)
    if history:
        _history(declared, job)
        return
    request = DrillRequest(
        declared,
        savepoint=savepoint,
        repository=source,
        batches=batches,
        limit=limit,
        time_limit_s=parse_duration_s(time_limit) if time_limit is not None else None,
        scratch=scratch,
        keep=keep,
        timeout_s=parse_duration_s(timeout) if timeout is not None else None,
        by=who("cli"),
        why=why,
    )
    for option, given in (("--limit", limit), ("--time-limit", time_limit)):
        if given is not None and not request.of_each:
            raise InputError(
                f"{option} is for drills of each savepoint.",
                code="usage",
                hint="Add --savepoint each, or leave it out.",
            )
    report = drill_each(request, say=console.note) if request.of_each else run(request, say=console.note)
    console.answer(report.to_dict(), lambda: _show(report))
    if not report.passed:
        raise typer.Exit(1)


def _history(declared: Job, job: str) -> None:
    """Answer with the drills that there have been."""
    from streambank.control.drills import drills_of

    found = list(drills_of(declared.records()))
    console.answer({"job": job, "drills": found}, lambda: _show_history(found))


def _show(report: DrillReport | RoundReport) -> None:
    console.line(f"drill of job {report.job}: {report.verdict}")
    console.fields(report.rows())


def _show_history(found: list[JsonDict]) -> None:
    if not found:
        console.line("There was no drill of this job yet.")
        return
    from streambank.control.drills import called, savepoints_of

    rows = []
    for one in found:
        steps = one.get("steps", {})
        rows.append(
            [
                str(one.get("started_at", "")),
                called(savepoints_of(one)),
                "passed" if one.get("passed") else f"failed: {one.get('failed_step')}",
                _seconds(one.get("rto_s")),
                *(_seconds(steps.get(name)) for name in ("choose", "restore", "launch", "batches")),
                _seconds(one.get("rpo_s")),
            ]
        )
    console.table(
        ["started", "savepoint", "result", "RTO", "choose", "restore", "launch", "batches", "RPO"], rows
    )


def _seconds(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, (int, float)) else ""
