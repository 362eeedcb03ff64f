"""`job clean`: directories that work on a job has left, and their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import JobName, JobsFile, Why
from streambank.cli.output import console
from streambank.core.options import Option
from streambank.core.verb_options import CleanOptions

if TYPE_CHECKING:
    from streambank.cleaning.clean import CleanReport


def clean(
    name: JobName,
    jobs: JobsFile,
    options: CleanOptions,
    query: Annotated[str | None, Option("Only this query of the job.", metavar="QUERY")] = None,
    execute: Annotated[bool, Option("Remove them. Without it, only show what would go.")] = False,
    why: Why = "",
) -> None:
    """List what work on a job has left, such as earlier generations, and remove what nothing needs.

    Without --execute nothing is changed.
    """
    from streambank.cleaning.clean import clean_job
    from streambank.control.processes import who
    from streambank.declaration.load import read_jobs
    from streambank.declaration.maintenance import given_generations

    declared = read_jobs(jobs).around(name)
    job = declared.job(name, console.note)
    policy = given_generations(job.generations, options.keep, options.keep_for_s)
    with console.progress() as progress:
        report = clean_job(
            job,
            jobs=declared.jobs,
            by=who("cli"),
            why=why,
            query=query,
            policy=policy,
            dry_run=not execute,
            progress=progress,
        )
    console.answer(report.to_dict(), lambda: _show_cleaned(report))
    if report.having("failed"):
        raise typer.Exit(1)


def _show_cleaned(report: CleanReport) -> None:
    from streambank.core.units import utc_now

    rows = []
    now = utc_now()
    for one in report.decisions:
        left = one.directory
        size = f"{console.size(left.bytes)}{'' if left.counted else ' or more'}"
        age = console.age((now - left.since).total_seconds()) if left.since else None
        verdict = "would be removed" if one.state == "removable" else one.state
        why = one.why if one.error is None else one.error.message
        rows.append((left.location, left.kind, size, age, verdict, why))
    if rows:
        console.table(
            ("directory", "kind", "size", "left for", "verdict", "why"), rows, right=("size",), drop=("kind",)
        )
    for location, why in report.unread:
        console.line(f"not read: {location}: {why}")
    gone = report.having("removable", "removed")
    where = "directory" if len(gone) == 1 else "directories"
    found = f"{len(gone)} {where}, {console.size(report.bytes)}"
    if not rows:
        console.line(f"Work on job {report.job} has left nothing.")
    elif report.policy is None:
        console.line(
            f"Nothing goes: job {report.job} declares no generations.keep. Give --keep or --keep-for to see "
            "what would."
        )
    elif report.dry_run:
        console.line(f"{found} would be removed. Nothing was changed: --execute removes them.")
    else:
        console.line(f"removed: {found}")


VERBS = {"clean": (clean, "Example: streambank job clean orders --keep 2 --keep-for 7d --execute")}
