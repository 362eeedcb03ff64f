"""`state schema` and `state digest`: what state looks like, and a fingerprint of what is in it."""

from __future__ import annotations

from typing import Annotated, Any

from streambank.cli.output import console
from streambank.core.options import Option
from streambank.core.state_options import PartOptions
from streambank_spark.commands.compare import compare
from streambank_spark.commands.subject import SparkOptions, StateSubject, state_of

SCHEMA_EXAMPLES = """Examples:

  streambank state schema b000041 -r /data/savepoints

  streambank state schema b000041 -r /data/savepoints --against /data/checkpoints/orders-v2
"""


def schema(
    subject: StateSubject,
    spark: SparkOptions,
    against: Annotated[
        str | None,
        Option(
            "Check whether a query with the state of this one could go on from it; exit code 1 if not.",
            metavar="SAVEPOINT|CHECKPOINT",
        ),
    ] = None,
) -> None:
    """Show the operators, the parts of their state, and the columns of each, or compare them (--against)."""
    if against is not None:
        compare(subject, against)
        return
    with state_of(subject, spark) as found:
        from streambank_spark.state.state import schema_of

        document = {"of": found.of, **schema_of(found.state)}
    console.answer(document, lambda: _show_schema(document))


def _show_schema(document: dict[str, Any]) -> None:
    console.fields(
        [
            ("state of", document["of"]),
            ("batch", document["batch"]),
            ("kept by", document["provider"]),
            ("format", document["checkpoint_format"]),
        ]
    )
    if not document["operators"]:
        console.line("The query keeps no state.")
    for operator in document["operators"]:
        console.line()
        console.line(f"operator {operator['operator']} {operator['name'] or ''}".rstrip())
        rows = [
            (part["part"], column["column"], column["type"])
            for part in operator["parts"]
            for column in part["columns"]
        ]
        console.table(("part", "column", "type"), rows)


def digest(subject: StateSubject, of: PartOptions, spark: SparkOptions) -> None:
    """Give a fingerprint of all state: the same for the same rows, in any layout and number of partitions."""
    with state_of(subject, spark) as found:
        from streambank_spark.state.digest import digest_of

        digests = [each.to_dict() for each in digest_of(found.state, of.operator, of.part)]
        document = {"of": found.of, "batch": found.state.closure.batch, "operators": digests}
    console.answer(document, lambda: _show_digests(document))


def _show_digests(document: dict[str, Any]) -> None:
    console.fields([("state of", document["of"]), ("batch", document["batch"])])
    rows = [
        (each["operator"], each["store"], f"{each['rows']:,}", each["digest"])
        for each in document["operators"]
    ]
    columns = ("operator", "store", "rows", "digest")
    console.table(columns, rows, right=("operator", "rows"))


VERBS = {
    "schema": (schema, SCHEMA_EXAMPLES),
    "digest": (digest, "Example: streambank state digest b000041 -r /data/savepoints --json"),
}
