"""`state validate`: state against rules, and a savepoint in which the rows that break one are repaired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from streambank.cli.options import JobOption, RepositoryOfPlace, repository_meant
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank_spark.commands.compare import Samples
from streambank_spark.commands.rewrite import Note, show_restore, source_of
from streambank_spark.commands.subject import (
    LIMITED_TO,
    OfBatch,
    OfPart,
    Operator,
    Place,
    SparkOptions,
    as_text,
    savepoint_of,
    state_of,
    with_spark,
)

EXAMPLES = """Examples:

  streambank state validate b000041 -r /data/savepoints --rule "0: value.count >= 0"

  streambank state validate b000041 -r /data/savepoints --rule "value.count >= 0" \\
      --repair "value.count = greatest(value.count, 0)" --dry-run
"""


@with_spark
def validate(
    place: Place,
    rule: Annotated[
        list[str],
        typer.Option(metavar="SQL", help=f"An expression that must be true of every row. {LIMITED_TO}"),
    ],
    repository: RepositoryOfPlace = None,
    job: JobOption = None,
    batch: OfBatch = None,
    operator: Operator = None,
    part: OfPart = None,
    samples: Samples = 10,
    repair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SQL",
            help="Make a savepoint in which broken rows are set to this: value.COLUMN = EXPRESSION. "
            f"{LIMITED_TO}",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --repair: only show rows before and after.")
    ] = False,
    note: Note = "",
    *,
    spark: SparkOptions,
) -> None:
    """Check all state by rules, and list the rows that break one: exit code 1 if any stays broken."""
    if repair:
        repository = repository_meant([place], repository, job, batch)
        if repository is None:
            raise InputError(
                "--repair makes a savepoint from a savepoint, and this is a checkpoint.",
                code="usage",
                hint="Take a savepoint of the checkpoint first: nothing is ever repaired in place.",
            )
        _repair(
            {
                "rules": rule,
                "repairs": repair,
                "operator": operator,
                "part": part,
                "samples": samples,
                "dry_run": dry_run,
                "note": note,
            },
            place,
            repository,
            job,
            spark,
        )
        return
    if dry_run or note:
        raise InputError(
            "--dry-run and --note need --repair.",
            code="usage",
            hint="See `streambank state validate --help`.",
        )
    with state_of(place, repository, job, batch, spark) as found:
        from streambank_spark.state.rule import Rule
        from streambank_spark.state.validate import validate_state

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


def _repair(
    asked: Mapping[str, Any], reference: str, location: str, job: str | None, spark: SparkOptions
) -> None:
    from streambank_spark.rewrite.validate_request import ValidateRequest

    order = ValidateRequest.from_dict(asked)
    savepoint = savepoint_of(reference, location, job, spark, asked)
    from streambank_spark.rewrite.request import validate

    with source_of(savepoint, spark) as source:
        document = validate(source, order)
    console.answer(document, lambda: _show_repaired(document))
    if not document["ok"] and document["savepoint"] is None:
        raise typer.Exit(1)


def _show_repaired(document: dict[str, Any]) -> None:
    _show_judged(document["rules"], examples=False)
    for each in document["repairs"]:
        console.line()
        console.line(
            f"operator {each['operator']}, {each['part']}: {console.count(each['rows'], 'row')} repaired"
        )
        show_samples(each["samples"])
    console.line()
    if document["savepoint"] is not None:
        show_restore(document["savepoint"], document["of"])
    elif document["ok"]:
        console.line("No row is broken, so nothing was written.")
    else:
        console.line("Nothing was written.")


def _show_judged(judged: list[dict[str, Any]], *, examples: bool = True) -> None:
    rows = [
        (each["operator"], each["part"], each["rule"], f"{each['rows']:,}", f"{each['broken']:,}")
        for each in judged
    ]
    columns = ("operator", "part", "rule", "rows", "broken")
    console.table(columns, rows, right=("operator", "rows", "broken"))
    for each in judged if examples else ():
        for example in each["examples"]:
            console.line(f"broken in {each['operator']}/{each['part']}: {as_text(example)}")


def show_samples(samples: Sequence[dict[str, Any]]) -> None:
    """Changed rows, before and after."""
    for sample in samples:
        console.line(f"  {as_text(sample.get('key', {}))}")
        console.line(f"  - {as_text(sample['before'])}")
        console.line(f"  + {as_text(sample['after'])}")


VERBS = {validate: EXAMPLES}
