"""Arguments of tasks and triggers as Airflow can render them, show them, and hand them to the triggerer."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from streambank.core.errors import InputError

_PLAIN = (str, int, float, bool, type(None))


def as_plain(value: Any) -> Any:
    """The same with each `Path` as its text, also within lists and mappings: Airflow hands on no paths.

    Args:
        value: An argument.
    """
    if isinstance(value, PathLike):
        return fspath(value)
    if type(value) in (list, tuple):
        return type(value)(as_plain(one) for one in value)
    if type(value) is dict:
        return {as_plain(name): as_plain(one) for name, one in value.items()}
    return value


def check_deferrable(arguments: Mapping[str, Any]) -> None:
    """Refuse what cannot wait in the triggerer, before anything is done that the wait is for.

    Args:
        arguments: What the trigger takes.

    Raises:
        InputError: An argument cannot be handed to the triggerer, or its interval is no time (code
            `bad-option`).
    """
    for name, value in arguments.items():
        if not _is_plain(value):
            raise InputError(
                f"{name} is a {type(value).__name__}, which a task that defers cannot hand to the triggerer.",
                code="bad-option",
                hint=f"Give {name} as text or as a number; or set deferrable=False.",
            )
    interval = arguments.get("poll_interval_s", 1)
    if isinstance(interval, str) or not interval or interval < 0:
        raise InputError(
            f"poll_interval_s must be a number of seconds above 0, not {interval!r}.",
            code="bad-option",
            hint="Write 5, or leave it out.",
        )


def _is_plain(value: Any) -> bool:
    """Whether each release of Airflow gives the same back after a trigger's row was written and read."""
    if type(value) in (list, tuple):
        return all(_is_plain(one) for one in value)
    if type(value) is dict:
        return all(type(name) is str and _is_plain(one) for name, one in value.items())
    return type(value) in _PLAIN
