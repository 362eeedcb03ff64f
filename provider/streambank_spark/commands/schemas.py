"""`state schema A --against B`: whether a query that keeps B goes on from A; Spark is not asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from streambank.cli.output import console
from streambank.cli.repositories import open_repository
from streambank_spark.commands.subject import check_place

if TYPE_CHECKING:
    from streambank.checkpoint.schema.query import QuerySchema

FINE = ("same", "compatible")


def compare(place: str, against: str, repository: str | None, job: str | None, batch: int | None) -> None:
    """Compare, and answer: exit code 1 where Spark would refuse, or where nobody can tell.

    Raises:
        InputError: The options do not go together.
        StreambankError: A schema cannot be had.
    """
    from streambank.checkpoint.schema.compatibility import compare_schemas

    check_place(repository, job, batch)
    before, stored = _schema(place, repository, job, batch)
    after, wanted = _schema(against, None if is_location(against) else repository, job, None)
    document = {"before": before, "after": after, **compare_schemas(stored, wanted).to_dict()}
    console.answer(document, lambda: _show(document))
    if document["verdict"] not in FINE:
        raise typer.Exit(1)


def is_location(text: str) -> bool:
    """Whether a text is a path or a URI, and not a savepoint's id: `./ck`, `/data/ck`, `s3://b/ck`."""
    return text.startswith((".", "/")) or "://" in text


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
        console.line("Spark would go on, and lose some of what is stored: see below.")
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
