"""`job restore`: all queries of a job are restored as one."""

from __future__ import annotations

from functools import cache, partial
from typing import Annotated

import typer

from streambank.cli.options import (
    Debug,
    DryRun,
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
    sink: Sink = "refuse",
    sink_of: SinkOf = None,
    source: Source = "refuse",
    kafka: Kafka = None,
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
    from streambank.recovery.choices import parse_sink_choices
    from streambank.recovery.choose_together import from_place
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
            kafka=brokers_of(kafka, job.kafka),
            by={**by, "reason": why} if why else by,
        )

    with console.progress() as progress:
        pace = Pace(executor=machines, progress=progress)
        if dry_run:
            plan = plan_together(request(pace), pace=pace)
            found = plan.to_dict()
        else:
            found = restore_together(request(pace), pace=pace).to_dict()

    def text() -> None:
        for of_query in found["queries"].values():
            (show_plan if dry_run else show_done)(of_query)
        for query in found["already_restored"]:
            console.line(f"query {query} was restored already, by the restore that was not finished")
        if len(found["queries"]) > 1:
            console.line(f"The savepoints were taken within {console.age(found['skew_s'])} of each other.")

    console.answer(found, text)
    if dry_run and plan.refusals:
        raise typer.Exit(plan.refusals[0].exit_code)
