"""`state validate`: state against rules, and a savepoint in which the rows that break one are repaired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from streambank.cli.options import repository_meant
from streambank.cli.output import console
from streambank.core.errors import InputError
from streambank.core.options import Option
from streambank.core.state_options import LIMITED_TO, PartOptions, RepairOptions, SampleOptions
from streambank_spark.commands.rewrite import Note, show_restore, source_of
from streambank_spark.commands.subject import (
    SavepointSubject,
    SparkOptions,
    StateSubject,
    as_text,
    savepoint_of,
    state_of,
)

EXAMPLES = """Examples:

  streambank state validate b000041 -r /data/savepoints --rule "0: value.count >= 0"

  streambank state validate b000041 -r /data/savepoints --rule "value.count >= 0" \\
      --repair "value.count = greatest(value.count, 0)" --dry-run
"""


def validate(
    subject: StateSubject,
    rules: Annotated[
        tuple[str, ...],
        Option(f"An expression that must be true of every row. {LIMITED_TO}", flag="--rule", metavar="SQL"),
    ],
    repair: RepairOptions,
    of: PartOptions,
    shown: SampleOptions,
    spark: SparkOptions,
    dry_run: Annotated[bool, Option("With --repair: only show rows before and after.")] = False,
    note: Note = "",
) -> None:
    """Check all state by rules, and list the rows that break one: exit code 1 if any stays broken."""
    if repair.repairs:
        asked = {"rules": rules, "dry_run": dry_run, "note": note, **vars(repair), **vars(of), **vars(shown)}
        _repair(asked, subject, spark)
        return
    if dry_run or note:
        raise InputError(
            "--dry-run and --note need --repair.",
            code="usage",
            hint="See `streambank state validate --help`.",
        )
    with state_of(subject, spark) as found:
        from streambank_spark.state.rule import Rule
        from streambank_spark.state.validate import validate_state

        parsed = [Rule.parse(text, of.operator, of.part) for text in rules]
        judged = [each.to_dict() for each in validate_state(found.state, parsed, shown.samples)]
        document = {
            "of": found.of,
            "batch": found.state.closure.batch,
            "ok": not any(each["broken"] for each in judged),
            "rules": judged,
        }
    console.answer(document, lambda: _show_judged(judged))
    if not document["ok"]:
        raise typer.Exit(1)


def _repair(asked: Mapping[str, Any], subject: StateSubject, spark: SparkOptions) -> None:
    repository = repository_meant([subject.place], subject.repository, subject.job, subject.batch)
    if repository is None:
        raise InputError(
            "--repair makes a savepoint from a savepoint, and this is a checkpoint.",
            code="usage",
            hint="Take a savepoint of the checkpoint first: nothing is ever repaired in place.",
        )
    from streambank_spark.rewrite.validate_request import ValidateRequest

    order = ValidateRequest.from_dict(asked)
    saved = SavepointSubject(savepoint=subject.place, repository=repository, job=subject.job)
    found = savepoint_of(saved, spark, asked)
    from streambank_spark.rewrite.request import validate

    with source_of(found, spark) as source:
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


VERBS = {"validate": (validate, EXAMPLES)}
