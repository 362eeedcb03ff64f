"""`job restore`: all queries of a job are restored as one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Annotated

import typer

from streambank.cli.options import (
    Debug,
    DryRun,
    FileSinkOf,
    JobName,
    JobsFile,
    Json,
    Kafka,
    Master,
    On,
    Sink,
    SinkOf,
    Source,
    SparkConf,
    SparkProperties,
    Why,
    job_named,
)
from streambank.cli.output import console

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
    on: On = "auto",
    master: Master = None,
    spark_conf: SparkConf = None,
    spark_properties: SparkProperties = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Restore all queries of a stopped job as one, each into its next generation."""
    from streambank.cli.options import brokers_of, executor
    from streambank.cli.verbs.recovery.restore import show_done, show_plan
    from streambank.control.processes import who
    from streambank.core.units import to_json_time
    from streambank.recovery.choices import parse_file_sinks, parse_sink_choices
    from streambank.recovery.choosing.together import from_place
    from streambank.recovery.request import TogetherRequest
    from streambank.recovery.together import plan_together, restore_together
    from streambank.work.executor import Pace

    declared = cache(partial(job_named, name, jobs))
    machines = executor(on, master, spark_conf, spark_properties, _PARALLEL, of=declared)
    job = declared()
    records = job.records()
    by = who("cli")

    def request(pace: Pace) -> TogetherRequest:
        repository, chosen = from_place(
            job,
            source_of,
            savepoint,
            control=records,
            target=next(iter(job.queries.values())),
            record=not dry_run,
            by=by,
            pace=pace,
        )
        return TogetherRequest(
            job,
            repository,
            savepoint,
            chosen=chosen,
            control=records,
            sink=sink,
            sink_of=parse_sink_choices(sink_of or []),
            source=source,
            file_sinks=parse_file_sinks(file_sink or [], job.queries),
            kafka=brokers_of(kafka, job.kafka),
            restored_with=tuple(readers or ()),
            by={**by, "reason": why} if why else by,
        )

    def of_reader(one: str, moment: str) -> TogetherRequest:
        reader = job_named(one, jobs)
        return TogetherRequest(
            reader,
            reader.open_repository(),
            moment,
            sink=sink,
            source=source,
            kafka=brokers_of(kafka, reader.kafka),
            restored_with=tuple(readers or ()),
            by={**by, "reason": why} if why else by,
        )

    plans = []
    with console.progress() as progress:
        pace = Pace(executor=machines, progress=progress)
        asked = [request(pace)]
        if dry_run or readers:
            plans = [plan_together(asked[0], pace=pace)]
            shown = plans[0].plans
            moment = to_json_time(min(one.taken_at for one in shown.values())) if shown else savepoint
            asked = [*(of_reader(one, moment) for one in readers or ()), *asked]
            plans = [*(plan_together(one, pace=pace) for one in asked[:-1]), *plans]
        if dry_run:
            done = [plan.to_dict() for plan in plans]
        else:
            for plan in plans:  # what speaks against one of several jobs is raised before any is changed
                for refusal in plan.refusals:
                    raise refusal
            if plans and asked[-1].chosen is None:
                chosen = {query: one.savepoint for query, one in plans[-1].plans.items()}
                asked[-1] = replace(asked[-1], savepoints=chosen)
            done = [restore_together(one, pace=pace).to_dict() for one in asked]
    *of_readers, found = done

    def text() -> None:
        for one in done:
            for of_query in one["queries"].values():
                (show_plan if dry_run else show_done)(of_query)
            for query in one["already_restored"]:
                console.line(f"query {query} was restored already, by the restore that was not finished")
            if len(one["queries"]) > 1:
                console.line(f"The savepoints were taken within {console.age(one['skew_s'])} of each other.")

    console.answer({**found, "readers": of_readers} if readers else found, text)
    if dry_run:
        for refusal in (one for plan in plans for one in plan.refusals):
            raise typer.Exit(refusal.exit_code)
