"""Verbs of our own, and those that other packages add by the entry-point group `streambank.commands`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from streambank.core.errors import InputError

COMMANDS_GROUP = "streambank.commands"
"""Entry points of this group are typer apps; each becomes a verb of its name, `job.NAME` one of `job`."""


class Verbs(TyperGroup):
    """Our verbs first; entry points are looked at only for a name that is not ours, and for the list."""

    prefix: ClassVar[str] = ""
    """How the names of entry points begin that are verbs of this group."""
    panels: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("take", "import", "list", "show", "verify", "pin", "unpin", "restore"), "Savepoints"
        ),
        **dict.fromkeys(("job", "sla", "doctor", "programs"), "Jobs"),
        **dict.fromkeys(("inspect", "skew", "compact", "state", "rescale"), "Checkpoints and their state"),
    }
    """Under which heading of the help a verb stands."""
    other: ClassVar[str] = "Repositories"
    """The heading of all other verbs."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A verb by name; None where there is none."""
        own = super().get_command(ctx, cmd_name)
        found: Any = own if own is not None else _load(self.prefix + cmd_name)
        if found is not None:
            found.rich_help_panel = self.panels.get(cmd_name, self.other)
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that arguments begin with.

        Raises:
            InputError: It is `version`, which many commands have as a verb and this one as an option.
        """
        if args[:1] == ["version"] and not self.prefix:
            raise InputError(
                "No such command 'version'. Did you mean '--version'?",
                code="usage",
                hint="See `streambank --help`.",
            )
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Every verb in the order of the help."""
        own = super().list_commands(ctx)
        added = [name.removeprefix(self.prefix) for name in _added() if name.startswith(self.prefix)]
        names = own + [name for name in added if "." not in name and name not in own]
        headings = [*dict.fromkeys(self.panels.values()), self.other]
        return sorted(names, key=lambda name: headings.index(self.panels.get(name, self.other)))


class JobVerbs(Verbs):
    """The verbs of `streambank job`."""

    prefix = "job."
    panels: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("list", "status", "history"), "Look"),
        **dict.fromkeys(("savepoint", "restore", "compact", "rescale", "clean"), "Savepoints and state"),
    }
    other = "Start and stop"


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
