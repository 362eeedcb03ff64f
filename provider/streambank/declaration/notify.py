"""Who is alerted of what: `notify`, a list of Airflow notifiers by class and arguments.

The engine only reads what is declared. The Airflow face loads the classes when there is something to tell, so
that neither the DAG processor nor the command line needs what a notifier imports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from streambank.core.choices import SEVERITIES, Severity
from streambank.declaration.fields import Fields

KINDS = (
    "giving-up",
    "cannot-start",
    "checkpoint-lost",
    "repository-lost",
    "checkpoint-damaged",
    "restart",
    "not-watched",
    "approval-waits",
    "late-restore",
    "replica-failed",
    "savepoint-damaged",
    "compaction-failed",
    "drill-failed",
    "upgrade-failed",
    "refresh-failed",
    "sla",
)
"""What `[[jobs.NAME.notify]]` may be for; docs/howto/sla-notifications.md says when each is sent."""

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_EXAMPLE = '"airflow.providers.slack.notifications.slack.SlackNotifier"'


@dataclass(frozen=True, slots=True)
class Notify:
    """One notifier.

    Attributes:
        args: Arguments of its constructor, by name; texts may be templates.
        least: From which level on it is told: `warn` or `breach`.
        kinds: For an entry of the job's own `notify`: of what it is alerted, from `KINDS`.
    """

    path: str
    args: Mapping[str, Any] = field(default_factory=dict)
    least: Severity = "warn"
    kinds: tuple[str, ...] = KINDS

    @property
    def teller(self) -> str:
        """A name for what this one was told: another channel or message is another teller."""
        return teller_name(self.path, [self.args, self.least])


def teller_name(path: str, what: Any) -> str:
    """The name under which it is kept what a notifier was told.

    Args:
        what: What else makes it this one; only a digest of it is in the name. Values that are no JSON count
            by their type.
    """
    text = json.dumps([path, what], sort_keys=True, default=lambda value: type(value).__qualname__)
    return f"{path.rpartition('.')[2][:80].lstrip('_') or 'n'}-{sha256(text.encode()).hexdigest()[:16]}"


def read_notify(
    fields: Fields, *, levels: bool = True, kinds: bool = False, name: str = "notify"
) -> tuple[Notify, ...]:
    """`notify = [{class = "package.Notifier", args = {...}}]` of a table.

    Args:
        levels: Whether an entry may say from which level on it is told.
        kinds: Whether an entry may say of what it is alerted.

    Raises:
        InputError: An entry is wrong, or there twice (code `bad-declaration`).
    """
    found: list[Notify] = []
    for entry in fields.tables(name):
        path = entry.required("class", entry.text("class"))
        if not _PATH.fullmatch(path):
            raise entry.mistake(
                "class", f"{path!r} is not a class with its module", f"Write one such as {_EXAMPLE}."
            )
        args = entry.any_table("args") or {}
        _check_args(entry, args)
        least = entry.choice("least", SEVERITIES) if levels else None
        wanted = _kinds(entry) if kinds else KINDS
        if least is not None and "sla" not in wanted:
            raise entry.mistake("least", "it is for the kind sla, which is not among its kinds")
        entry.done()
        one = Notify(path, args, least or "warn", wanted)
        if one in found:
            raise fields.mistake(name, f"{path} is listed twice with the same arguments")
        found.append(one)
    return tuple(found)


def _kinds(entry: Fields) -> tuple[str, ...]:
    """Of what an entry is alerted: of everything where it names no kinds."""
    named = entry.texts("kinds")
    if named is None:
        return KINDS
    if not named:
        raise entry.mistake(
            "kinds", "it names no kind", f"Leave it out, or name some of: {', '.join(KINDS)}."
        )
    for one in named:
        if one not in KINDS:
            raise entry.mistake("kinds", f"{one!r} is not a kind", f"Known: {', '.join(KINDS)}.")
    return tuple(dict.fromkeys(named))


def refuse_silent(fields: Fields, declared: tuple[Notify, ...], silent: Mapping[str, str]) -> None:
    """Refuse an entry of a job's `notify` that nothing would ever alert.

    Of an entry that the job has from the defaults of all jobs, some kinds may never occur in this one.

    Args:
        silent: Kinds that cannot occur in this job, each with the reason.

    Raises:
        InputError: There is one (code `bad-declaration`).
    """
    own = fields.source.has((*fields.path, "notify"))
    for number, one in enumerate(declared, 1):
        if one.kinds == KINDS:
            continue
        never = [kind for kind in one.kinds if kind in silent]
        if never and (own or len(never) == len(one.kinds)):
            raise fields.source.mistake(
                (*fields.path, "notify", str(number), "kinds"),
                f"{never[0]} would never be sent: {silent[never[0]]}",
                "Leave the kind out, or declare what it needs.",
            )


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
