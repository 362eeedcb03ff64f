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
    from streambank.drills.report import BatchDrill, DrillReport

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
    report: DrillReport | RoundReport
    if request.of_each:
        report = of_round = drill_each(request, say=console.note)
        console.answer(report.to_dict(), lambda: _show_round(of_round))
    else:
        report = of_one = run(request, say=console.note)
        console.answer(report.to_dict(), lambda: _show(of_one))
    if not report.passed:
        raise typer.Exit(1)


def _history(declared: Job, job: str) -> None:
    """Answer with the drills that there have been."""
    from streambank.control.drills import drills_of

    found = list(drills_of(declared.records()))
    console.answer({"job": job, "drills": found}, lambda: _show_history(found))


def _show_round(report: RoundReport) -> None:
    from streambank.control.drills import called
    from streambank.core.units import from_json_time

    failed = report.failed
    count = console.count(len(report.drills), "savepoint")
    if failed:
        console.line(f"drills of job {report.job}: {len(failed)} of {count} FAILED")
    else:
        console.line(f"drills of job {report.job}: {count} passed")
    for one in failed:
        where = called(one["savepoints"]) or "no savepoint"
        console.line(f"  {where} FAILED at the step {one['failed_step']}: {one['error']}")
    for one in report.drills:
        if one["not_run"]:
            name = called(one["round"]["savepoints"])
            console.line(f"  of {name} the savepoint and its state are proven, and no more: {one['not_run']}")
    for skipped in report.skipped:
        console.line(f"  {called(skipped.savepoints)} was skipped: {skipped.why}")
    if report.ended:
        console.line(f"  {report.ended}")
    console.line()
    rows = []
    for one in report.drills:
        taken_at = one["round"]["taken_at"]
        taken = None if taken_at is None else from_json_time(one["started_at"]) - from_json_time(taken_at)
        rpo_s = one["rpo_s"] if one["passed"] else None
        rows.append(
            [
                called(one["round"]["savepoints"]),
                "" if taken is None else console.age(taken.total_seconds()),
                "passed" if one["passed"] else f"failed: {one['failed_step']}",
                _seconds(one["rto_s"]),
                "" if rpo_s is None else console.age(rpo_s),
            ]
        )
    console.table(["savepoint", "age", "result", "RTO", "RPO"], rows)


def _show(report: DrillReport) -> None:
    from streambank.control.drills import for_queries

    if report.passed:
        console.line(f"drill of job {report.job} passed")
    else:
        where = f"{for_queries(report.to_dict())} at the step {report.failed_step}"
        console.line(f"drill of job {report.job} FAILED{where}: {report.error}")
    for rejected in report.still_rejected:
        console.line(f"  {rejected.said}")
    if report.not_run:
        console.line(f"  The savepoint and its state are proven, and no more: {report.not_run}")
    for one in report.queries:
        behind = (
            "" if one.batches_behind is None else f", {console.count(one.batches_behind, 'batch')} behind"
        )
        console.line(f"query {one.query}: savepoint {one.savepoint}, {console.age(one.age_s)} old{behind}")
        for batch in one.batches:
            console.line(f"  batch {batch.batch}: {batch.seconds:.1f} s, {_compared(batch)}")
        if one.state_equal is not None:
            same = "is" if one.state_equal else "is NOT"
            console.line(f"  state after batch {one.batches[-1].batch} {same} that of the live query")
        for why in one.not_compared:
            console.line(f"  not compared: {why}")
    console.line()
    console.table(["step", "seconds"], [[name, f"{seconds:.1f}"] for name, seconds in report.steps.items()])
    rto = "not measured" if report.rto_s is None else f"{report.rto_s:.1f} s"
    console.fields([("RTO", rto), ("RPO", "" if report.rpo_s is None else console.age(report.rpo_s))])
    if report.kept:
        console.line(f"the copy is in {report.scratch}")


def _compared(batch: BatchDrill) -> str:
    found = batch.differences
    if found:
        return "; ".join(found)
    same = [
        f"{ours:,} {what}"
        for what, ours, theirs in (
            ("rows of input", batch.input_rows, batch.live_input_rows),
            ("rows of state", batch.state_rows, batch.live_state_rows),
            ("rows of output", batch.output.get("rows"), batch.output.get("live_rows")),
        )
        if ours is not None and ours == theirs
    ]
    return f"as in the live query: {', '.join(same)}" if same else "nothing of it was compared"


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
