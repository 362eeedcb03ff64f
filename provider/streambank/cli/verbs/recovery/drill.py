"""The verb `drill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import Debug, JobsFile, Json
from streambank.cli.output import console

if TYPE_CHECKING:
    from streambank.control.records import JsonDict
    from streambank.drills.report import BatchDrill, DrillReport

EXAMPLES = """Examples:

  streambank drill orders --jobs dags/streaming_jobs.toml

  streambank drill orders --from s3://replica/savepoints --savepoint random --batches 5

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
            metavar="SAVEPOINT|latest-good|random",
            help="What is restored; random is any savepoint that is kept. Default: what the job declares.",
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
        str | None, typer.Option(metavar="DURATION", help="How long the application may take, such as 30m.")
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
    from streambank.control.drills import drills_of
    from streambank.control.processes import who
    from streambank.core.units import parse_duration_s
    from streambank.declaration.declaration import load_jobs
    from streambank.drills.drill import DrillRequest
    from streambank.drills.drill import drill as run

    declared = load_jobs(jobs).job(job)
    if history:
        found = list(drills_of(declared.records()))
        console.answer({"job": job, "drills": found}, lambda: _show_history(found))
        return
    request = DrillRequest(
        declared,
        savepoint=savepoint,
        repository=source,
        batches=batches,
        scratch=scratch,
        keep=keep,
        timeout_s=parse_duration_s(timeout) if timeout is not None else None,
        by=who("cli"),
        why=why,
    )
    report = run(request, say=console.note)
    console.answer(report.to_dict(), lambda: _show(report))
    if not report.passed:
        raise typer.Exit(1)


def _show(report: DrillReport) -> None:
    if report.passed:
        console.line(f"drill of job {report.job} passed")
    else:
        console.line(f"drill of job {report.job} FAILED at the step {report.failed_step}: {report.error}")
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
        console.line("no drill yet")
        return
    rows = []
    for one in found:
        steps = one.get("steps", {})
        rows.append(
            [
                str(one.get("started_at", "")),
                "passed" if one.get("passed") else f"failed: {one.get('failed_step')}",
                _seconds(one.get("rto_s")),
                *(_seconds(steps.get(name)) for name in ("choose", "restore", "launch", "batches")),
                _seconds(one.get("rpo_s")),
            ]
        )
    console.table(["started", "result", "RTO", "choose", "restore", "launch", "batches", "RPO"], rows)


def _seconds(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, (int, float)) else ""
