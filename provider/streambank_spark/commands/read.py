"""`state read`, `state query` and `state export`: rows of state, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

import typer

from streambank.cli.options import JobOption, RepositoryOfPlace
from streambank.cli.output import console
from streambank.cli.output.console import MODE
from streambank.core.errors import InputError
from streambank_spark.commands.subject import (
    OfBatch,
    OfPart,
    Operator,
    Place,
    SparkOptions,
    as_text,
    state_of,
    with_spark,
)

READ_EXAMPLES = """Examples:

  streambank state read b000041 -r /data/savepoints --key k17

  streambank state read latest --job orders --jobs streaming_jobs.toml --key '{"customer": 17}'

  streambank state read b000041 -r /data/savepoints --part left --where "value.amount < 0" --json

  streambank state read /data/checkpoints/orders --limit 0 --lines > state.jsonl
"""
QUERY_EXAMPLE = (
    'Example: streambank state query b000041 "SELECT key.k, value.count FROM state ORDER BY 2 DESC" '
    "-r /data/savepoints"
)
EXPORT_EXAMPLE = "Example: streambank state export b000041 /data/exports/b000041 -r /data/savepoints"

Limit = Annotated[int, typer.Option(min=0, metavar="N", help="How many rows at most; 0 for all.")]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Only the rows of this key: all or some of its fields as a JSON object, or its only field as "
        "text.",
    ),
]
WhereRows = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Only rows for which this expression is true.")
]


@with_spark
def read(
    place: Place,
    repository: RepositoryOfPlace = None,
    job: JobOption = None,
    batch: OfBatch = None,
    operator: Operator = None,
    part: OfPart = None,
    key: Key = None,
    where: WhereRows = None,
    limit: Limit = 20,
    lines: Annotated[bool, typer.Option("--lines", help="Answer with one JSON object per line.")] = False,
    *,
    spark: SparkOptions,
) -> None:
    """Show rows of state: any operator, join side, state variable, timers."""
    if lines and MODE.json:
        raise InputError(
            "--lines and --json cannot be combined.", code="usage", hint="See `streambank state read --help`."
        )
    from streambank.recovery.foresee import check_key

    check = None if key is None else partial(check_key, text=key, operator=operator)
    with state_of(place, repository, job, batch, spark, check) as found:
        from streambank_spark.state.read import RowChoice, iterate_rows, read_rows

        choice = RowChoice(operator, part, key, where)
        if lines and limit == 0:
            # Nothing is gathered: state may be larger than this machine's memory.
            console.answer(None, lambda: _show_lines(iterate_rows(found.state, choice)))
            return
        rows, more = read_rows(found.state, choice, limit)
        document = {"of": found.of, "batch": found.state.closure.batch, "rows": rows, "more": more}
    if lines:
        console.answer(document, lambda: _show_lines(rows))
    else:
        console.answer(document, lambda: _show_rows(document))


def _show_lines(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        console.line(as_text(row))


def _show_rows(document: dict[str, Any]) -> None:
    rows = document["rows"]
    if not rows:
        console.line("No rows.")
        return
    head = ("operator", "part", "partition")
    table = [
        (
            *(row[name] for name in head),
            as_text(row.get("key", {})),
            as_text({name: value for name, value in row.items() if name not in (*head, "key")}),
        )
        for row in rows
    ]
    console.table((*head, "key", "rest"), table, right=("operator", "partition"))
    if document["more"]:
        console.line("and more: give --limit, or --limit 0 for all")


@with_spark
def query(
    place: Place,
    sql: Annotated[
        str,
        typer.Argument(
            metavar="SQL",
            help="A SELECT over the view `state`; if there are several parts, over `<part>` or "
            "`op<operator>_<part>`.",
        ),
    ],
    repository: RepositoryOfPlace = None,
    job: JobOption = None,
    batch: OfBatch = None,
    limit: Limit = 100,
    *,
    spark: SparkOptions,
) -> None:
    """Answer an SQL query over state."""
    with state_of(place, repository, job, batch, spark) as found:
        from streambank_spark.state.query import read_query

        columns, rows, more = read_query(found.state, sql, limit)
        document = {"of": found.of, "batch": found.state.closure.batch}
        document |= {"columns": columns, "rows": rows, "more": more}
    console.answer(document, lambda: _show_answer(document))


def _show_answer(document: dict[str, Any]) -> None:
    columns = document["columns"]
    rows = [[_cell(row.get(name)) for name in columns] for row in document["rows"]]
    console.table(columns, rows)
    if document["more"]:
        console.line("and more: give --limit, or --limit 0 for all")


def _cell(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, type(None))) else as_text(value)


@with_spark
def export(
    place: Place,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="An empty directory: a path or a URI.")],
    repository: RepositoryOfPlace = None,
    job: JobOption = None,
    batch: OfBatch = None,
    operator: Operator = None,
    part: OfPart = None,
    key: Key = None,
    where: WhereRows = None,
    *,
    spark: SparkOptions,
) -> None:
    """Write state as Parquet files, a folder for each part."""
    with state_of(place, repository, job, batch, spark) as found:
        from streambank_spark.state.read import RowChoice, export_state

        written = export_state(found.spark, found.state, target, RowChoice(operator, part, key, where))
        parts = [each.to_dict() for each in written]
        document = {"of": found.of, "batch": found.state.closure.batch, "parts": parts}
    console.answer(document, lambda: _show_export(parts))


def _show_export(parts: list[dict[str, Any]]) -> None:
    rows = [(each["operator"], each["part"], f"{each['rows']:,}", each["path"]) for each in parts]
    console.table(("operator", "part", "rows", "path"), rows, right=("operator", "rows"))


VERBS = {read: READ_EXAMPLES, query: QUERY_EXAMPLE, export: EXPORT_EXAMPLE}
