"""The verb `doctor`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streambank.cli import console
from streambank.cli.options import Debug, Json

EXAMPLES = """Examples:

  streambank doctor

  streambank doctor /data/checkpoints/orders --file-sink /data/out
"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=EXAMPLES)(doctor)


def doctor(
    checkpoint: Annotated[
        str | None, typer.Argument(metavar="[CHECKPOINT]", help="Look at a checkpoint, too.")
    ] = None,
    file_sink: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Output directory of a file sink of its query; may be repeated."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Find what will hurt, in this installation and in a checkpoint: exit code 1 for errors and warnings."""
    from streambank.doctor.checkpoint import check_checkpoint
    from streambank.doctor.installation import check_installation, facts, worst
    from streambank.storage import open_store

    found = check_installation()
    if checkpoint is not None:
        sinks = {location: open_store(location) for location in file_sink or []}
        found += check_checkpoint(open_store(checkpoint), sinks)
    versions = facts()
    severity = worst(found)
    document = {
        "ok": severity in ("ok", "info"),
        "versions": versions,
        "checkpoint": open_store(checkpoint).uri if checkpoint is not None else None,
        "findings": [finding.to_dict() for finding in found],
    }
    console.answer(document, lambda: _show(document))
    if not document["ok"]:
        raise typer.Exit(1)


def _show(document: dict[str, Any]) -> None:
    console.fields([(name, version or "not installed") for name, version in document["versions"].items()])
    console.line()
    if document["findings"]:
        console.findings(document["findings"])
    else:
        console.line("Nothing to complain about.")
