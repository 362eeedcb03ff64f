"""`job restore`: all queries of a job are restored as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated

import typer

from streambank.cli.options import (
    Debug,
    DryRun,
    FileSinkOf,
    JobName,
    JobsFile,
    Json,
    Kafka,
    Machines,
    Sink,
    SinkOf,
    Source,
    Why,
    job_named,
)
from streambank.cli.output import console

if TYPE_CHECKING:
    from streambank.declaration.declaration import Job
    from streambank.recovery.choosing.resolve import Chosen
    from streambank.repository.repository import Repository

_PARALLEL = 4
"""Files hashed and copied at once."""
EXAMPLES = """Examples:

  streambank job restore orders --sink rollback --dry-run

  streambank job restore orders latest --jobs dags/streaming_jobs.toml

  streambank job restore orders 03:00 --with reports --sink rollback
"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=EXAMPLES)(restore)


def restore(
    name: JobName,
    jobs: JobsFile,
    machines: Machines,
    savepoint: Annotated[
        str,
        typer.Argument(
            metavar="[REFERENCE]",
            help="Which savepoint of each query. latest-good, the default, is the newest moment that "
            "verified savepoints of all queries reach.",
        ),
    ] = "latest-good",
    source_of: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="LOCATION|nearest",
            help="Where the savepoints come from, if not from the repository: a replica, or nearest: the "
            "repository or replica that is cheapest to read, and has those of all queries undamaged.",
        ),
    ] = None,
    readers: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="JOB",
            help="Restore this job first, which reads what the job writes, to its newest savepoints from "
            "before; may be repeated.",
        ),
    ] = None,
    sink: Sink = "refuse",
    sink_of: SinkOf = None,
    source: Source = "refuse",
    kafka: Kafka = None,
    file_sink: FileSinkOf = None,
    dry_run: DryRun = False,
    why: Why = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Restore all queries of a stopped job as one, each into its next generation."""
    from streambank.cli.options import brokers_of
    from streambank.cli.verbs.recovery.restore import answer
    from streambank.control.processes import who
    from streambank.core.units import to_json_time
    from streambank.recovery.choices import parse_file_sinks, parse_sink_choices
    from streambank.recovery.choosing.together import from_place
    from streambank.recovery.request import RestoreRequest, TogetherRequest
    from streambank.recovery.together import TogetherPlan, TogetherReport, plan_together, restore_together
    from streambank.work.executor import Pace

    declared = cache(partial(job_named, name, jobs))
    executor = machines.executor(declared, parallel=_PARALLEL)
    job, by = declared(), who("cli")

    def of_job(
        of: Job,
        repository: Repository,
        reference: str,
        chosen: Mapping[str, Chosen] | None = None,
        sink_of: Sequence[str] = (),
        file_sinks: Sequence[str] = (),
    ) -> TogetherRequest:
        each = RestoreRequest(
            repository,
            reference,
            generation=of.records(),
            sink=sink,
            sink_of=parse_sink_choices(sink_of),
            source=source,
            kafka=brokers_of(kafka, of.kafka),
            by={**by, "reason": why} if why else by,
        )
        sinks, beside = parse_file_sinks(file_sinks, of.queries), tuple(readers or ())
        return TogetherRequest(each, of, chosen=chosen, file_sinks=sinks, restored_with=beside)

    plans: list[TogetherPlan] = []
    with console.progress() as progress:
        pace = Pace(executor=executor, progress=progress)
        place = from_place(
            job,
            source_of,
            savepoint,
            control=job.records(),
            target=next(iter(job.queries.values())),
            record=not dry_run,
            by=by,
            pace=pace,
        )
        asked = [of_job(job, place[0], savepoint, place[1], sink_of or [], file_sink or [])]
        if dry_run or readers:
            plans = [plan_together(asked[0], pace=pace)]
            shown = plans[0].plans
            moment = to_json_time(min(one.taken_at for one in shown.values())) if shown else savepoint
            reading = [job_named(one, jobs) for one in readers or ()]
            asked = [*(of_job(one, one.open_repository(), moment) for one in reading), *asked]
            plans = [*(plan_together(one, pace=pace) for one in asked[:-1]), *plans]
        done: list[TogetherPlan] | list[TogetherReport] = plans
        if not dry_run:
            for plan in plans:  # what speaks against one of several jobs is raised before any is changed
                for refusal in plan.refusals:
                    raise refusal
            if plans and asked[-1].chosen is None:
                chosen = {query: one.savepoint for query, one in plans[-1].plans.items()}
                asked[-1] = replace(asked[-1], savepoints=chosen)
            done = [restore_together(one, pace=pace) for one in asked]
    *of_readers, found = [one.to_dict() for one in done]
    answer({**found, "readers": of_readers} if readers else found, done)
