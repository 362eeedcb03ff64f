"""The verb `reindex`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from streambank.cli.options import RepositoryOption, open_repository
from streambank.cli.output import console

if TYPE_CHECKING:
    from streambank.repository.objects.index_files import FileDamage


def reindex(repository: RepositoryOption) -> None:
    """Rebuild the index of a repository from its packs: exit code 1 if packs are damaged or missing."""
    report = open_repository(repository).objects.index.rebuild()
    document = {
        "ok": not (report.damaged or report.lost),
        "changed": report.changed,
        "packs": report.packs,
        "objects": report.objects,
        "added_packs": report.added,
        "repaired_packs": list(report.repaired),
        "damaged_index_files": [_to_dict(damage) for damage in report.index_files],
        "damaged_packs": [_to_dict(damage) for damage in report.damaged],
        "lost_packs": list(report.lost),
    }
    console.answer(document, lambda: _show(document))
    if not document["ok"]:
        raise typer.Exit(1)


def _to_dict(damage: FileDamage) -> dict[str, str]:
    return {"file": damage.key, "error": damage.error.code, "message": damage.error.message}


def _show(document: dict[str, Any]) -> None:
    counts = f"{console.count(document['packs'], 'pack')}, {console.count(document['objects'], 'object')}"
    if document["changed"]:
        console.line(
            f"The index was rebuilt: {counts}; {console.count(document['added_packs'], 'pack')} added, "
            f"{console.count(len(document['damaged_index_files']), 'damaged index file')} replaced."
        )
    else:
        console.line(f"The index is in order: {counts}.")
    for key in document["repaired_packs"]:
        console.line(f"repaired: the table of contents of {key} was written again.")
    for damage in document["damaged_packs"]:
        console.line(f"damaged: {damage['message']}")
    for key in document["lost_packs"]:
        console.line(f"gone: {key}")
    if not document["ok"]:
        console.line("`streambank verify --all` shows which savepoints need them.")


VERBS = {"reindex": (reindex, "Example: streambank reindex -r /data/savepoints")}
