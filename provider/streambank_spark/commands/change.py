"""`state transform` and `state bootstrap`: a savepoint with other values, or with state from a table."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import job_named
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option
from streambank.core.state_options import (
    BootstrapOptions,
    PartOptions,
    RehearseOptions,
    SampleOptions,
    TransformOptions,
)
from streambank_spark.commands.rewrite import Note, say, show_restore, source_of
from streambank_spark.commands.subject import (
    SavepointSubject,
    SparkOptions,
    as_text,
    savepoint_of,
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


def transform(
    subject: SavepointSubject,
    change: TransformOptions,
    of: PartOptions,
    shown: SampleOptions,
    rehearsal: RehearseOptions,
    spark: SparkOptions,
    dry_run: Annotated[bool, Option("Only show rows before and after, and what would be deleted.")] = False,
    note: Note = "",
) -> None:
    """Make a savepoint in which columns of state have other values, or keys are deleted."""
    from streambank_spark.change.request import TransformRequest

    asked = vars(change) | vars(of) | vars(shown)
    request = TransformRequest.from_dict(
        {**asked, "dry_run": dry_run, "note": note, "rehearse": rehearsal.rehearse}
    )
    _run(request, subject, rehearsal, spark)


def bootstrap(
    subject: SavepointSubject,
    table: Annotated[
        str, Option("The table: a directory or a file that Spark reads.", flag="--from", metavar="TABLE")
    ],
    options: BootstrapOptions,
    of: PartOptions,
    shown: SampleOptions,
    rehearsal: RehearseOptions,
    spark: SparkOptions,
    dry_run: Annotated[bool, Option("Only check the table, and show rows of state made from it.")] = False,
    note: Note = "",
) -> None:
    """Make a savepoint that has state from a table, so that a query begins with it."""
    from streambank_spark.change.request import BootstrapRequest

    asked = vars(options) | vars(of) | vars(shown)
    asked |= {"table": table, "format": asked.pop("table_format"), "query": asked.pop("sql")}
    request = BootstrapRequest.from_dict(
        {**asked, "dry_run": dry_run, "note": note, "rehearse": rehearsal.rehearse}
    )
    _run(request, subject, rehearsal, spark)


def _run(
    request: TransformRequest | BootstrapRequest,
    subject: SavepointSubject,
    rehearsal: RehearseOptions,
    spark: SparkOptions,
) -> None:
    from streambank.control.processes import who
    from streambank.core.names import QueryRef

    rehearse, batches = rehearsal.rehearse, rehearsal.batches
    if (rehearse and (spark.jobs is None or request.dry_run)) or (batches is not None and not rehearse):
        raise InputError(
            "--rehearse needs --jobs and a new savepoint; --batches needs --rehearse.",
            code="usage",
            hint="Give --jobs FILE, and leave --dry-run out.",
        )
    savepoint = savepoint_of(subject, spark, asdict(request))
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
            declared,
            place,
            document["savepoint"],
            subject.repository,
            batches=batches,
            by=who("cli"),
            say=say,
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


VERBS = {"transform": (transform, TRANSFORM_EXAMPLES), "bootstrap": (bootstrap, BOOTSTRAP_EXAMPLES)}
