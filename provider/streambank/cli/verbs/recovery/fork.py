"""The verb `fork`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import DryRun, JobsFile, Kafka, Why
from streambank.cli.output import console
from streambank.core.options import Option
from streambank.core.verb_options import RefreshOptions

if TYPE_CHECKING:
    from streambank.copies.report import RefreshReport

EXAMPLES = """Examples:

  streambank fork orders staging --jobs dags/streaming_jobs.toml --dry-run

  streambank fork orders staging --from nearest

  streambank job start orders@staging
"""


def fork(
    job: Annotated[str, Option("A job that the jobs file declares.", metavar="JOB", positional=True)],
    copy: Annotated[
        str, Option("A copy that the job declares, such as staging.", metavar="COPY", positional=True)
    ],
    jobs: JobsFile,
    options: RefreshOptions,
    kafka: Kafka = None,
    dry_run: DryRun = False,
    why: Why = "",
) -> None:
    """Make a copy of a job's state, or make it again, while the job runs on.

    Each query is restored with a new query id into a fresh directory, which then becomes the copy. Nothing
    of the live job is touched. `streambank job start JOB@COPY` runs the application on it.
    """
    from streambank.cli.options import brokers_of
    from streambank.control.processes import who
    from streambank.copies.refresh import RefreshRequest, plan_refresh, refresh
    from streambank.core.names import SEPARATOR
    from streambank.declaration.load import read_jobs
    from streambank.sites.standing import at_active_site
    from streambank.work.executor import Pace

    declared = read_jobs(jobs).around(job).job(job)
    active = at_active_site(declared, console.note)
    live = declared if SEPARATOR in job else active
    if live.site != active.site:
        console.note(
            f"The copy is of the {live.site}, which is not the active site of job {live.name}: "
            f"that is the {active.site}."
        )
    kafka_of = brokers_of(kafka, live.kafka)
    request = RefreshRequest(live, copy, kafka=kafka_of, by=who("cli"), why=why, **vars(options))
    with console.progress() as progress:
        pace = Pace(progress=progress)
        report = (plan_refresh if dry_run else refresh)(request, pace=pace)
    console.answer(report.to_dict(), lambda: _show(report))
    if report.refusals:
        raise typer.Exit(report.refusals[0].exit_code)


def _show(report: RefreshReport) -> None:
    console.line(f"copy {report.runs_as} {'would be made' if report.dry_run else 'was made'}")
    console.fields(report.rows())
    if report.dry_run:
        return
    if report.state_only:
        console.line("Look at its state: streambank state read, with its checkpoint.")
    else:
        console.line(f"Run the application on it: streambank job start {report.runs_as}")


VERBS = {"fork": (fork, EXAMPLES)}
