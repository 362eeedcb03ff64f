"""The verb `failover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import (
    Debug,
    FileSinkOf,
    JobsFile,
    Json,
    NewSink,
    Sink,
    SinkOf,
    Source,
    Why,
)
from streambank.cli.output import console
from streambank.core.errors import InputError

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.failover.report import FailoverPlan, FailoverReport

EXAMPLES = """Examples:

  streambank failover orders --jobs dags/streaming_jobs.toml --dry-run

  streambank failover orders --is-down primary --why "the data centre is on fire"

  streambank failover orders --to primary

  streambank failover orders --fence
"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=EXAMPLES)(failover)


def failover(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A job with a standby that the jobs file declares.")
    ],
    jobs: JobsFile,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="primary|standby",
            help="The site at which the job goes on; by default the one that is not active.",
        ),
    ] = None,
    is_down: Annotated[
        str | None,
        typer.Option(
            metavar="primary|standby",
            help="You know that this site, which does not answer, is down. If its driver runs on all the "
            "same, two drivers write to every sink that both sites share, until the site answers again. This "
            "is recorded.",
        ),
    ] = None,
    final_savepoint: Annotated[
        bool,
        typer.Option(
            "--final-savepoint/--no-final-savepoint",
            help="Refuse if the site that was active answers, and cannot give a last savepoint; or go on "
            "from the newest savepoint there is.",
        ),
    ] = True,
    savepoint: Annotated[
        str | None,
        typer.Option(
            metavar="SAVEPOINT|latest-good",
            help="What is restored if no last savepoint could be taken; by default the newest that verifies.",
        ),
    ] = None,
    sink: Sink = "refuse",
    sink_of: SinkOf = None,
    source: Source = "refuse",
    file_sink: FileSinkOf = None,
    new_sink: NewSink = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long the start may take, such as 30m.")
    ] = None,
    why: Why = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, and what prevents it.")
    ] = False,
    fence: Annotated[
        bool,
        typer.Option(
            "--fence",
            help="Only fence the site that is not active, which could not be reached at the fail-over.",
        ),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a job go on at its other site: fence the active one, restore there, start, and prove a batch.

    The way back is the same command. --new-sink counts over what the standby declares. A second run finishes
    one that was interrupted. Exit code 1 of --dry-run: something speaks against it.
    """
    from streambank.control.processes import who
    from streambank.core.units import parse_duration_s
    from streambank.declaration.load import read_jobs
    from streambank.failover.failover import failover as run
    from streambank.failover.failover import plan_failover
    from streambank.failover.report import FailoverRequest
    from streambank.recovery.choices import parse_file_sinks, parse_new_sinks, parse_sink_choices

    if fence and (dry_run or to is not None or is_down is not None):
        raise InputError(
            "--fence goes with none of --to, --is-down and --dry-run.",
            code="usage",
            hint="See `streambank failover --help`.",
        )
    declared = read_jobs(jobs).around(job).job(job)
    if fence:
        _fence(declared, why)
        return
    request = FailoverRequest(
        declared,
        to=to,
        is_down=is_down,
        final_savepoint=final_savepoint,
        savepoint=savepoint,
        sink=sink,
        sink_of=parse_sink_choices(sink_of or []),
        source=source,
        new_outputs=parse_new_sinks(new_sink or []),
        file_sinks=parse_file_sinks(file_sink or [], declared.queries),
        timeout_s=parse_duration_s(timeout) if timeout is not None else None,
        by=who("cli"),
        why=why,
    )
    if dry_run:
        plan = plan_failover(request)
        console.answer(plan.to_dict(), lambda: _show_plan(plan))
        if plan.refusals:
            raise typer.Exit(1)
        return
    report = run(request, say=console.note)
    console.answer(report.to_dict(), lambda: _show(report))


def _fence(job: Job, why: str) -> None:
    from streambank.control.processes import who
    from streambank.failover.fence import fence_other

    counts, how = fence_other(job, by=who("cli"), why=why)
    document = {
        "job": job.name,
        "active": "primary" if counts is None else counts.active,
        "number": None if counts is None else counts.number,
        "fenced": how is not None,
        "fence": how,
    }

    def text() -> None:
        if how is None:
            console.line(f"There is nothing to fence for job {job.name}.")
        else:
            console.line(f"The site of job {job.name} that is not active is fenced; its driver: {how}")

    console.answer(document, text)


def _show_plan(plan: FailoverPlan) -> None:
    console.line(f"would fail over job {plan.job} from the {plan.was} to the {plan.site}")
    console.fields(plan.rows())


def _show(report: FailoverReport) -> None:
    console.line(f"job {report.job} runs at the {report.site}")
    console.fields(report.rows())
