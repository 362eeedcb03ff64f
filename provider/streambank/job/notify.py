"""Who is to be told: `notify`, a list of Airflow notifiers by class and arguments.

The engine only reads what is declared. The Airflow face loads the classes when there is something to tell, so
that neither the DAG processor nor the command line needs what a notifier imports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal

from streambank.job.fields import Fields

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_EXAMPLE = '"airflow.providers.slack.notifications.slack.SlackNotifier"'


@dataclass(frozen=True, slots=True)
class Notify:
    """One notifier.

    Attributes:
        path: Its class, with its module: `package.module.Class`.
        args: Arguments of its constructor, by name; texts may be templates.
        least: From which level on it is told: `warn` or `breach`.
    """

    path: str
    args: Mapping[str, Any] = field(default_factory=dict)
    least: Literal["warn", "breach"] = "warn"

    @property
    def teller(self) -> str:
        """A name for what this one was told: another channel or message is another teller."""
        return teller_name(self.path, [self.args, self.least])


def teller_name(path: str, what: Any) -> str:
    """The name under which it is kept what a notifier was told.

    Args:
        path: Its class.
        what: What else makes it this one; only a digest of it is in the name. Values that are no JSON count
            by their type.
    """
    text = json.dumps([path, what], sort_keys=True, default=lambda value: type(value).__qualname__)
    return f"{path.rpartition('.')[2][:80].lstrip('_') or 'n'}-{sha256(text.encode()).hexdigest()[:16]}"


def read_notify(fields: Fields, *, levels: bool = True) -> tuple[Notify, ...]:
    """`notify = [{class = "package.Notifier", args = {...}}]` of a table.

    Args:
        fields: The table.
        levels: Whether an entry may say from which level on it is told.

    Raises:
        InputError: An entry is wrong, or there twice (code `bad-declaration`).
    """
    found: list[Notify] = []
    for entry in fields.tables("notify"):
        path = entry.required("class", entry.text("class"))
        if not _PATH.fullmatch(path):
            raise entry.mistake(
                "class", f"{path!r} is no class with its module", f"Write one such as {_EXAMPLE}."
            )
        args = entry.any_table("args") or {}
        _check_args(entry, args)
        least = entry.text("least", choices=("warn", "breach")) if levels else None
        entry.done()
        one = Notify(path, args, "breach" if least == "breach" else "warn")
        if one in found:
            raise fields.mistake("notify", f"{path} is there twice with the same arguments")
        found.append(one)
    return tuple(found)


def _check_args(entry: Fields, args: Mapping[str, Any]) -> None:
    for name, value in args.items():
        if not name.isidentifier():
            raise entry.mistake("args", f"{name!r} cannot be the name of an argument")
        if not _is_json(value):
            raise entry.mistake(
                "args", f"{name} holds a date or a time", 'Write it as a text, such as "2026-12-01".'
            )


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_json(one) for one in value.values())
    if isinstance(value, list):
        return all(_is_json(one) for one in value)
    return isinstance(value, str | int | float | bool)
