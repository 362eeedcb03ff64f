"""The verb `drill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import JobsFile, job_named
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option
from streambank.core.verb_options import DrillOptions

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


def drill(
    job: Annotated[str, Option("A job that the jobs file declares.", metavar="JOB", positional=True)],
    jobs: JobsFile,
    options: DrillOptions,
    why: Annotated[str, Option("Why, for the job's records.", metavar="TEXT")] = "",
    history: Annotated[bool, Option("Show the drills of the job instead, the newest first.")] = False,
) -> None:
    """Rehearse a restore on a copy, with the job's own application, beside the running job.

    Nothing of the live job is touched: its checkpoint, outputs, source positions and records are only read.
    Exit code 1: the drill failed.
    """
    from streambank.control.processes import who
    from streambank.drills.drill import drill as run
    from streambank.drills.each import drill_each
    from streambank.drills.request import DrillRequest

    declared = job_named(job, jobs)
    if history:
        _history(declared, job)
        return
    request = DrillRequest(declared, by=who("cli"), why=why, **vars(options))
    for option, given in (("--limit", options.limit), ("--time-limit", options.time_limit_s)):
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


VERBS = {"drill": (drill, EXAMPLES)}
