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


def _panels(verbs: Mapping[str, str]) -> dict[str, str]:
    return {verb: heading for heading, names in verbs.items() for verb in names.split()}


class Verbs(TyperGroup):
    """Our verbs first; entry points are looked at only for a name that is not ours, and for the list."""

    prefix: ClassVar[str] = ""
    """How the names of entry points begin that are verbs of this group."""
    panels: ClassVar[Mapping[str, str]] = _panels(
        {
            "Savepoints": "take import list show verify pin unpin restore",
            "Jobs": "job sla doctor sinks programs",
            "Recovery and change": "drill upgrade failover fork",
            "Checkpoints and their state": "inspect skew compact state rescale advise plan-memory",
            "Repositories": "expire undelete undelete-files sweep reindex replicate repair status sign key",
        }
    )
    """Under which heading of the help a verb stands, in the order of the help."""
    added: ClassVar[str] = "Added by other packages"
    """The heading of verbs that are not ours."""
    synonyms: ClassVar[Mapping[str, str]] = {
        "version": "--version",
        "help": "--help",
        **dict.fromkeys(("backup", "snapshot", "create"), "take"),
        "ls": "list",
        **dict.fromkeys(("delete", "rm", "forget"), "expire"),
        "prune": "sweep",
        "check": "verify",
        "rollback": "restore SAVEPOINT --sink rollback",
    }
    """What other tools call a verb of ours, and what it is here."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        found: Any = own if own is not None else _load(self.prefix + cmd_name)
        if found is not None:
            found.rich_help_panel = self.panels.get(cmd_name, self.added)
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that arguments begin with.

        Raises:
            InputError: There is none, and another command has it (code `usage`).
        """
        name = args[0] if args else ""
        meant = None if not name or self.get_command(ctx, name) else self._meant(ctx, name)
        if meant is not None:
            raise InputError(
                f"No such command {name!r}. Did you mean '{meant}'?",
                code="usage",
                hint=f"See `{ctx.command_path} --help`.",
            )
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: Any, name: str) -> str | None:
        """What a person means who types a verb of another tool, or one of a group without the group."""
        if name in self.synonyms:
            return self.synonyms[name]
        if self.prefix:
            return None
        groups = {group: self.get_command(ctx, group) for group in ("job", "state")}
        return next(
            (f"{group} {name}" for group, found in groups.items() if found and found.get_command(ctx, name)),
            None,
        )

    def list_commands(self, ctx: Any) -> list[str]:
        """Every verb in the order of the help."""
        own = super().list_commands(ctx)
        added = [name.removeprefix(self.prefix) for name in _added() if name.startswith(self.prefix)]
        names = own + [name for name in added if "." not in name and name not in own]
        headings = [*dict.fromkeys(self.panels.values()), self.added]
        return sorted(names, key=lambda name: headings.index(self.panels.get(name, self.added)))


class JobGroup(Verbs):
    """The verbs of `streambank job`."""

    prefix = "job."
    synonyms: ClassVar[Mapping[str, str]] = {"take": "job savepoint", "run": "job start", "kill": "job stop"}
    panels: ClassVar[Mapping[str, str]] = _panels(
        {
            "Look": "list status history overview",
            "Savepoints and state": "savepoint restore clean compact rescale",
            "Start and stop": "start restart stop",
            "Records": "break move-records sign-records",
        }
    )


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
