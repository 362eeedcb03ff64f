"""`state diff` and `state validate`: state against other state, and against rules."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from streambank.cli import console
from streambank.cli.options import Debug, JobOption, Json, RepositoryOption, SparkConf
from streambank_spark.commands.place import (
    Master,
    OfBatch,
    OfPart,
    Operator,
    Place,
    Repository,
    SparkOptions,
    Work,
    several,
    state_of,
)

VALIDATE_EXAMPLE = (
    'Example: streambank state validate b000041 -r /data/savepoints --rule "0: value.count >= 0"'
)

Samples = Annotated[
    int, typer.Option(min=0, metavar="N", help="How many to show, of each part (and each rule).")
]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: streambank state diff b000040 b000041 -r /data/savepoints")(diff)
    app.command(epilog=VALIDATE_EXAMPLE)(validate)


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A savepoint.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one, usually a later one.")],
    repository: RepositoryOption,
    job: JobOption = None,
    operator: Operator = None,
    part: OfPart = None,
    samples: Samples = 10,
    master: Master = None,
    spark_conf: SparkConf = None,
    work: Work = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare the state of two savepoints by key: what was added, removed and changed."""
    places, spark = [before, after], SparkOptions(master, spark_conf, work)
    with several(places, repository, job, None, spark) as (first, second):
        from streambank_spark.diff import diff_states

        found = diff_states(first.state, second.state, operator, part, samples)
        document = {
            "before": {"of": first.of, "batch": first.state.closure.batch},
            "after": {"of": second.of, "batch": second.state.closure.batch},
            "equal": all(each.equal for each in found),
            "parts": [each.to_dict() for each in found],
        }
    console.answer(document, lambda: _show_diff(document))


def _show_diff(document: dict[str, Any]) -> None:
    console.fields(
        [(when, f"{document[when]['of']}, batch {document[when]['batch']}") for when in ("before", "after")]
    )
    names = ("rows_before", "rows", "added", "removed", "changed", "same")
    rows = [
        (each["operator"], each["part"], *(f"{each[name]:,}" for name in names), each["note"])
        for each in document["parts"]
    ]
    console.table(
        ("operator", "part", "rows before", "rows", "added", "removed", "changed", "same", "note"),
        rows,
        right=("operator", "rows before", "rows", "added", "removed", "changed", "same"),
    )
    for each in document["parts"]:
        for sample in each["samples"]:
            console.line()
            console.line(f"{sample['change']} {each['operator']}/{each['part']} {_text(sample['key'])}")
            for sign, when in (("-", "before"), ("+", "after")):
                for row in sample[when]:
                    console.line(f"  {sign} {_text(row)}")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def validate(
    place: Place,
    rule: Annotated[
        list[str],
        typer.Option(
            metavar="SQL",
            help="What must be true of every row: an expression, or OPERATOR: or OPERATOR/PART: before it. "
            "May be repeated.",
        ),
    ],
    repository: Repository = None,
    job: JobOption = None,
    batch: OfBatch = None,
    operator: Operator = None,
    part: OfPart = None,
    samples: Samples = 10,
    master: Master = None,
    spark_conf: SparkConf = None,
    work: Work = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check all state by rules, and list the rows that break one: exit code 1 where there are any."""
    with state_of(place, repository, job, batch, SparkOptions(master, spark_conf, work)) as found:
        from streambank_spark.validate import Rule, validate_state

        rules = [Rule.parse(text, operator, part) for text in rule]
        judged = [each.to_dict() for each in validate_state(found.state, rules, samples)]
        document = {
            "of": found.of,
            "batch": found.state.closure.batch,
            "ok": not any(each["broken"] for each in judged),
            "rules": judged,
        }
    console.answer(document, lambda: _show_judged(judged))
    if not document["ok"]:
        raise typer.Exit(1)


def _show_judged(judged: list[dict[str, Any]]) -> None:
    rows = [
        (each["operator"], each["part"], each["rule"], f"{each['rows']:,}", f"{each['broken']:,}")
        for each in judged
    ]
    columns = ("operator", "part", "rule", "rows", "broken")
    console.table(columns, rows, right=("operator", "rows", "broken"))
    for each in judged:
        for example in each["examples"]:
            console.line(f"broken in {each['operator']}/{each['part']}: {_text(example)}")
