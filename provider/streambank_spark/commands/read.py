"""`state read`, `state query` and `state export`: rows of state, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from streambank.cli.output import console
from streambank.cli.output.console import MODE
from streambank.core.errors import InputError
from streambank.core.options import Option
from streambank.core.state_options import PartOptions
from streambank_spark.commands.subject import SparkOptions, StateSubject, as_text, state_of

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

Limit = Annotated[int, Option("How many rows at most; 0 for all.", metavar="N", least=0)]


@dataclass(kw_only=True)
class RowOptions(PartOptions):
    """Which rows of the state."""

    key: Annotated[
        str | None,
        Option(
            "Only the rows of this key: all or some of its fields as a JSON object, or its only field as "
            "text.",
            metavar="KEY",
        ),
    ] = None
    where: Annotated[str | None, Option("Only rows for which this expression is true.", metavar="SQL")] = None


def read(
    subject: StateSubject,
    rows_of: RowOptions,
    spark: SparkOptions,
    limit: Limit = 20,
    lines: Annotated[bool, Option("Answer with one JSON object per line.")] = False,
) -> None:
    """Show rows of state: any operator, join side, state variable, timers."""
    if lines and MODE.json:
        raise InputError(
            "--lines and --json cannot be combined.", code="usage", hint="See `streambank state read --help`."
        )
    from streambank.recovery.foresee import check_key

    key = rows_of.key
    check = None if key is None else partial(check_key, text=key, operator=rows_of.operator)
    with state_of(subject, spark, check) as found:
        from streambank_spark.state.read import RowChoice, iterate_rows, read_rows

        choice = RowChoice(**vars(rows_of))
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


def query(
    subject: StateSubject,
    sql: Annotated[
        str,
        Option(
            "A SELECT over the view `state`; if there are several parts, over `<part>` or "
            "`op<operator>_<part>`.",
            metavar="SQL",
            positional=True,
        ),
    ],
    spark: SparkOptions,
    limit: Limit = 100,
) -> None:
    """Answer an SQL query over state."""
    with state_of(subject, spark) as found:
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


def export(
    subject: StateSubject,
    target: Annotated[str, Option("An empty directory: a path or a URI.", metavar="TARGET", positional=True)],
    rows_of: RowOptions,
    spark: SparkOptions,
) -> None:
    """Write state as Parquet files, a folder for each part."""
    with state_of(subject, spark) as found:
        from streambank_spark.state.read import RowChoice, export_state

        written = export_state(found.spark, found.state, target, RowChoice(**vars(rows_of)))
        parts = [each.to_dict() for each in written]
        document = {"of": found.of, "batch": found.state.closure.batch, "parts": parts}
    console.answer(document, lambda: _show_export(parts))


def _show_export(parts: list[dict[str, Any]]) -> None:
    rows = [(each["operator"], each["part"], f"{each['rows']:,}", each["path"]) for each in parts]
    console.table(("operator", "part", "rows", "path"), rows, right=("operator", "rows"))


VERBS = {"read": (read, READ_EXAMPLES), "query": (query, QUERY_EXAMPLE), "export": (export, EXPORT_EXAMPLE)}
