"""`state transform` and `state bootstrap`: a savepoint with other values, or with state from a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import JobOption, RepositoryOption, job_named
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank_spark.commands.compare import Samples
from streambank_spark.commands.rewrite import Note, Savepoint, say, show_restore, source_of
from streambank_spark.commands.subject import (
    LIMITED_TO,
    SQL_OF_ROWS,
    OfPart,
    Operator,
    SparkOptions,
    as_text,
    savepoint_of,
    with_spark,
)
from streambank_spark.commands.validate import show_samples

if TYPE_CHECKING:
    from streambank.drills.report import DrillReport
    from streambank_spark.change.request import BootstrapRequest, TransformRequest

TRANSFORM_EXAMPLES = """Examples:

  streambank state transform b000041 -r /data/savepoints --set "value.total = value.total * 100" --dry-run

  streambank state transform b000041 -r /data/savepoints --set "value.total = 0" --where "key.shop = 's7'" \\
      --delete-where "key.shop like 'test%'" --rehearse --jobs dags/streaming_jobs.toml
"""
BOOTSTRAP_EXAMPLES = """Examples:

  streambank state bootstrap b000000 -r /data/savepoints --from /data/totals --existing replace \\
      --key "customer = customer_id" --value "sum = amount" --value "count = orders"

  streambank state bootstrap b000000 -r /data/savepoints --from /data/orders --existing replace \\
      --sql "SELECT customer, sum(amount) AS sum FROM source GROUP BY customer" --dry-run
"""
Rehearse = Annotated[
    bool,
    typer.Option(
        "--rehearse",
        help="Then run the job's own application on a copy of the new savepoint for some batches, as a drill "
        "does. It needs --jobs.",
    ),
]
Batches = Annotated[
    int | None,
    typer.Option(
        "--batches", min=0, metavar="N", help="With --rehearse: how many batches of the live query."
    ),
]


@with_spark
def transform(
    savepoint: Savepoint,
    repository: RepositoryOption,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SQL",
            help=f"What a column becomes: value.COLUMN = EXPRESSION over the row before. {LIMITED_TO}",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help=f"Set only rows for which this is true: {SQL_OF_ROWS}"),
    ] = None,
    delete_where: Annotated[
        str | None,
        typer.Option(
            "--delete-where",
            metavar="SQL",
            help=f"Delete keys if this is true of all their rows: {SQL_OF_ROWS}",
        ),
    ] = None,
    operator: Operator = None,
    part: OfPart = None,
    samples: Samples = 10,
    job: JobOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show rows before and after, and what would be deleted.")
    ] = False,
    note: Note = "",
    rehearse: Rehearse = False,
    batches: Batches = None,
    *,
    spark: SparkOptions,
) -> None:
    """Make a savepoint in which columns of state have other values, or keys are deleted."""
    from streambank_spark.change.request import TransformRequest

    request = TransformRequest.from_dict(
        {
            "sets": sets,
            "where": where,
            "delete_where": delete_where,
            "operator": operator,
            "part": part,
            "samples": samples,
            "dry_run": dry_run,
            "note": note,
            "rehearse": rehearse,
        }
    )
    _run(request, savepoint, repository, job, spark, rehearse=rehearse, batches=batches)


@with_spark
def bootstrap(
    savepoint: Savepoint,
    repository: RepositoryOption,
    table: Annotated[
        str,
        typer.Option("--from", metavar="TABLE", help="The table: a directory or a file that Spark reads."),
    ],
    table_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="parquet, json, csv, orc, avro or delta. Default: by the name, else parquet.",
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--sql", metavar="SQL", help="A SELECT over the table, which is called source there."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="SQL",
            help="A field of the key: FIELD = EXPRESSION. Default: the column of its name. May be repeated.",
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value",
            metavar="SQL",
            help="A column of the value: COLUMN = EXPRESSION. Default: the column of its name. May be "
            "repeated.",
        ),
    ] = None,
    existing: Annotated[
        str | None,
        typer.Option(
            "--existing",
            metavar="WHAT",
            help="What becomes of rows that are there: replace (all go), keep (they win), or overwrite "
            "(the table wins). Default: refuse.",
        ),
    ] = None,
    operator: Operator = None,
    part: OfPart = None,
    samples: Samples = 10,
    job: JobOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the table, and show rows of state made from it.")
    ] = False,
    note: Note = "",
    rehearse: Rehearse = False,
    batches: Batches = None,
    *,
    spark: SparkOptions,
) -> None:
    """Make a savepoint that has state from a table, so that a query begins with it."""
    from streambank_spark.change.request import BootstrapRequest

    request = BootstrapRequest.from_dict(
        {
            "table": table,
            "format": table_format,
            "query": query,
            "keys": key,
            "values": value,
            "existing": existing,
            "operator": operator,
            "part": part,
            "samples": samples,
            "dry_run": dry_run,
            "note": note,
            "rehearse": rehearse,
        }
    )
    _run(request, savepoint, repository, job, spark, rehearse=rehearse, batches=batches)


def _run(
    request: TransformRequest | BootstrapRequest,
    reference: str,
    location: str,
    job: str | None,
    spark: SparkOptions,
    *,
    rehearse: bool,
    batches: int | None,
) -> None:
    from streambank.control.processes import who
    from streambank.core.names import QueryRef

    if (rehearse and (spark.jobs is None or request.dry_run)) or (batches is not None and not rehearse):
        raise InputError(
            "--rehearse needs --jobs and a new savepoint; --batches needs --rehearse.",
            code="usage",
            hint="Give --jobs FILE, and leave --dry-run out.",
        )
    savepoint = savepoint_of(reference, location, job, spark, asdict(request))
    place = savepoint[1]
    declared = job_named(QueryRef.parse(place).job, spark.jobs) if rehearse and spark.jobs else None
    if declared is not None:
        from streambank.drills.foreseen import foresee_rehearsal

        foresee_rehearsal(declared, declared.records())
    from streambank_spark.change.carry_out import carry_out

    with source_of(savepoint, spark) as source:
        document = carry_out(source, request)
    report = None
    document["rehearsal"] = None
    if declared is not None and document["savepoint"] is not None:
        from streambank.drills.of_savepoint import rehearse_made

        report = rehearse_made(
            declared, place, document["savepoint"], location, batches=batches, by=who("cli"), say=say
        )
        document["rehearsal"] = report.to_dict()
    console.answer(document, lambda: _show(document, report))
    if report is not None and (report.not_run or not report.passed):
        raise typer.Exit(1)


def _show(document: dict[str, Any], report: DrillReport | None) -> None:
    new = document["savepoint"]
    console.fields([("state of", document["of"]), ("batch", document["batch"]), ("savepoint", new)])
    console.line()
    if document["operation"] == "bootstrap":
        _show_made(document)
    else:
        _show_changes(document)
    console.line()
    if new is None:
        console.line(
            "Nothing was written." if document["dry_run"] else "No row changes, so nothing was written."
        )
        return
    if report is None:
        show_restore(new, document["of"])
        console.line("Try it first with the job's own application: --rehearse --jobs FILE.")
        return
    from streambank.drills.of_savepoint import do_not_restore, verdict

    console.line(verdict(report))
    if report.passed and not report.not_run:
        show_restore(new, document["of"])
    else:
        console.line(do_not_restore(new, document["of"]))


def _show_made(document: dict[str, Any]) -> None:
    made, given = (console.count(document[name], "row") for name in ("rows", "table_rows"))
    console.line(
        f"operator {document['operator']}, {document['part']}: {made} made from {given} of the table; there "
        f"were {document['existing_rows']:,} before"
    )
    for sample in document["samples"]:
        console.line(f"  {as_text(sample.get('key', {}))} {as_text(sample.get('value', {}))}")


def _show_changes(document: dict[str, Any]) -> None:
    for each in document["operators"]:
        console.line(
            f"operator {each['operator']}: {console.count(each['keys'], 'key')} deleted. {each['meaning']}"
        )
    for each in document["changes"]:
        console.line(f"operator {each['operator']}, {each['part']}: {console.count(each['rows'], 'row')} set")
        show_samples(each["samples"])


VERBS = {transform: TRANSFORM_EXAMPLES, bootstrap: BOOTSTRAP_EXAMPLES}
