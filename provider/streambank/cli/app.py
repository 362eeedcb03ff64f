"""The verbs: our own, and those that other packages add by the entry-point group `streambank.commands`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streambank import __version__
from streambank.cli import (
    checkpoints,
    compaction,
    diagnosis,
    index,
    jobs,
    replicas,
    restoring,
    retention,
    savepoints,
    skew,
    sla,
)
from streambank.errors import InputError

COMMANDS_GROUP = "streambank.commands"
"""Entry points of this group are typer apps; each becomes a verb of its name."""


class Verbs(TyperGroup):
    """Our verbs first; entry points are looked at only for a name that is not ours, and for the list."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A verb by name; None where there is none."""
        own = super().get_command(ctx, cmd_name)
        return own if own is not None else _load(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Every verb in the order of the help."""
        own = super().list_commands(ctx)
        return own + [name for name in _added() if name not in own]


def _added() -> list[str]:
    """Names that other packages add.

    Reading the metadata of every installed package takes longer than all the rest of the start, so files that
    do not even name the group are sorted out first.
    """
    heading = f"[{COMMANDS_GROUP}]".encode()
    files = (file for place in sys.path for file in Path(place or ".").glob("*.dist-info/entry_points.txt"))
    if not any(heading in file.read_bytes() for file in files):
        return []
    from importlib.metadata import entry_points

    return sorted(entry_points(group=COMMANDS_GROUP).names)


def _load(name: str) -> Any:
    """The verb that another package adds; None where no package does.

    Raises:
        InputError: The package is installed, but its command does not load (code `bad-command`).
    """
    if name not in _added():
        return None
    from importlib.metadata import entry_points

    (entry, *_) = entry_points(group=COMMANDS_GROUP, name=name)
    try:
        return typer.main.get_command(entry.load())
    except Exception as error:
        raise InputError(
            f"The command {name} of {entry.value} does not load: {error}",
            code="bad-command",
            hint="Repair or remove the package that adds it.",
        ) from error


app = typer.Typer(
    cls=Verbs,
    name="streambank",
    help="Savepoints for Spark Structured Streaming: inspect, take, verify, restore.",
    epilog="Exit codes: 0 done, 1 problems found, 2 to 8 and 70 by kind of error, 130 interrupted.",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        print(f"streambank {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Savepoints for Spark Structured Streaming: inspect, take, verify, restore."""


for module in (
    checkpoints,
    savepoints,
    restoring,
    retention,
    index,
    replicas,
    diagnosis,
    skew,
    sla,
    compaction,
):
    module.register(app)
app.add_typer(jobs.app, name="job")
