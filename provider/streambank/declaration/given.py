"""A declaration that stands in no file, as plain data: what JSON can hold, with the fields of a jobs file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import date, timedelta
from os import PathLike, fspath
from typing import Any

from streambank.core.errors import InputError
from streambank.core.json_text import loads
from streambank.core.options import as_data


def as_given(value: Any) -> dict[str, Any]:
    """A declaration as plain data, from a mapping, a `StreamingJob`, or a mapping that came as JSON text.

    Fields that are None are left out; paths, times and lengths of time become their texts.

    Raises:
        InputError: It is something else (code `bad-declaration`).
    """
    found = _parsed(value) if isinstance(value, str) else plain(value)
    if not isinstance(found, dict):
        raise InputError(
            f"A declaration must have the fields of a job's table, and this is a {type(value).__name__}.",
            code="bad-declaration",
            hint='Give a StreamingJob, or a mapping: {"name": ..., "application": ..., "checkpoint": ...}.',
        )
    return found


def plain(value: Any) -> Any:
    """The same as what JSON can hold; what only a run knows, such as a task's output, stays what it is."""
    if is_dataclass(value) and hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return {
            fspath(name) if isinstance(name, PathLike) else name: plain(one)
            for name, one in value.items()
            if one is not None
        }
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)}ms"
    return value.isoformat() if isinstance(value, date) else value


def _parsed(text: str) -> Any:
    try:
        return plain(loads(text))
    except ValueError:
        return plain(as_data(text))  # what a template makes of a mapping is Python's text
