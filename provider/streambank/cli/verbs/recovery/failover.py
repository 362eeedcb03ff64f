"""The verb `failover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import JobsFile, Why
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option
from streambank.core.verb_options import FailoverOptions, SingleSinkOptions

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.failover.report import FailoverPlan, FailoverReport

EXAMPLES = """Examples:

  streambank failover orders --jobs dags/streaming_jobs.toml --dry-run

  streambank failover orders --is-down primary --why "the data centre is on fire"

  streambank failover orders --to primary

  streambank failover orders --fence
"""


def failover(
    job: Annotated[
        str, Option("A job with a standby that the jobs file declares.", metavar="JOB", positional=True)
    ],
    jobs: JobsFile,
    options: FailoverOptions,
    single: SingleSinkOptions,
    why: Why = "",
    dry_run: Annotated[bool, Option("Only show what would be done, and what prevents it.")] = False,
    fence: Annotated[
        bool,
        Option("Only fence the site that is not active, which could not be reached at the fail-over."),
    ] = False,
) -> None:
    """Let a job go on at its other site: fence the active one, restore there, start, and prove a batch.

    The way back is the same command. --new-sink counts over what the standby declares. A second run finishes
    one that was interrupted. Exit code 1 of --dry-run: something speaks against it.
    """
    from streambank.control.processes import who
    from streambank.core.restore_choices import parse_file_sinks
    from streambank.declaration.load import read_jobs
    from streambank.failover.failover import failover as run
    from streambank.failover.failover import plan_failover
    from streambank.failover.report import FailoverRequest

    if fence and (dry_run or options.to is not None or options.is_down is not None):
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
        sink_of=single.sink_of,
        new_outputs=single.new_sinks,
        file_sinks=parse_file_sinks(single.file_sinks, declared.queries),
        by=who("cli"),
        why=why,
        **vars(options),
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


VERBS = {"failover": (failover, EXAMPLES)}
