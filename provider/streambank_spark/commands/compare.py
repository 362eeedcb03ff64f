"""`state diff`: state against other state."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from streambank.cli.options import JobOption, RepositoryOption
from streambank.cli.output import console
from streambank_spark.commands.subject import OfPart, Operator, SparkOptions, several, with_spark

Samples = Annotated[
    int, typer.Option(min=0, metavar="N", help="How many to show, of each part (and each rule).")
]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(epilog="Example: streambank state diff b000040 b000041 -r /data/savepoints")(diff)


@with_spark
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A savepoint.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one, usually a later one.")],
    repository: RepositoryOption,
    job: JobOption = None,
    operator: Operator = None,
    part: OfPart = None,
    samples: Samples = 10,
    *,
    spark: SparkOptions,
) -> None:
    """Compare the state of two savepoints by key: what was added, removed and changed."""
    with several([before, after], repository, job, None, spark) as (first, second):
        from streambank_spark.state.diff import diff_states

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
