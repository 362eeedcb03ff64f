"""`state diff`: state against other state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streambank.cli.options import (
    JobOption,
    RepositoryOption,
    is_checkpoint,
    open_repository,
    repository_meant,
)
from streambank.cli.output import console
from streambank.core.options import Option
from streambank.core.state_options import PartOptions, SampleOptions
from streambank_spark.commands.subject import SparkOptions, StateSubject, as_text, several

if TYPE_CHECKING:
    from streambank.checkpoint.schema.query import QuerySchema


def diff(
    before: Annotated[str, Option("A savepoint.", metavar="A", positional=True)],
    after: Annotated[str, Option("Another savepoint, usually a later one.", metavar="B", positional=True)],
    repository: RepositoryOption,
    of: PartOptions,
    shown: SampleOptions,
    spark: SparkOptions,
    job: JobOption = None,
) -> None:
    """Compare the state of two savepoints by key: what was added, removed and changed."""
    with several([before, after], repository, job, None, spark) as (first, second):
        from streambank_spark.state.diff import diff_states

        found = diff_states(first.state, second.state, of.operator, of.part, shown.samples)
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
            console.line(f"{sample['change']} {each['operator']}/{each['part']} {as_text(sample['key'])}")
            for sign, when in (("-", "before"), ("+", "after")):
                for row in sample[when]:
                    console.line(f"  {sign} {as_text(row)}")


FINE = ("same", "compatible")


def compare(subject: StateSubject, against: str) -> None:
    """Compare, and answer: exit code 1 where Spark would refuse, or where nobody can tell.

    Raises:
        InputError: The options do not go together.
        StreambankError: A schema cannot be had.
    """
    from streambank.checkpoint.schema.compatibility import compare_schemas

    place, repository, job, batch = subject.place, subject.repository, subject.job, subject.batch
    of_place = repository_meant([place], repository, job, batch)
    of_other = None if is_checkpoint(against) else repository_meant([against], repository, job, None)
    before, stored = _schema(place, of_place, job, batch)
    after, wanted = _schema(against, of_other, job, None)
    document = {"before": before, "after": after, **compare_schemas(stored, wanted).to_dict()}
    console.answer(document, lambda: _show(document))
    if document["verdict"] not in FINE:
        raise typer.Exit(1)


def _schema(
    place: str, repository: str | None, job: str | None, batch: int | None
) -> tuple[dict[str, Any], QuerySchema]:
    from streambank.savepoint.schema import schema_of_checkpoint, schema_of_savepoint
    from streambank.storage import open_store

    if repository is None:
        store = open_store(place)
        found, schema = schema_of_checkpoint(store, batch)
        return {"of": store.uri, "batch": found}, schema
    opened = open_repository(repository)
    owner, savepoint = opened.find(place, job)
    found, schema = schema_of_savepoint(opened, owner, savepoint)
    return {"of": f"{owner}/{savepoint}", "batch": found}, schema


def _show(document: dict[str, Any]) -> None:
    before, after = (
        f"{document[when]['of']}, batch {document[when]['batch']}" for when in ("before", "after")
    )
    console.fields([("state of", before), ("for a query as", after), ("verdict", document["verdict"])])
    if document["loses"] and document["verdict"] in FINE:
        console.line("Spark would go on, but lose some of what is stored: see below.")
    if document["settings"]:
        console.line()
        rows = [(one["setting"], one["before"], one["after"]) for one in document["settings"]]
        console.table(("the state's setting stays", "it has", "the other one"), rows)
    for operator in document["operators"]:
        name = operator["before"] or operator["after"] or ""
        console.line()
        console.line(f"operator {operator['operator']} {name}: {operator['verdict']}")
        for one in operator["differences"]:
            where = "/".join(str(part) for part in (one["store"], one["family"], one["column"]) if part)
            console.line(f"  {one['verdict']:<12} {where or 'the operator'}: {one['why']}")
            if one["do"]:
                console.line(f"               {one['do']}")


VERBS = {"diff": (diff, "Example: streambank state diff b000040 b000041 -r /data/savepoints")}
