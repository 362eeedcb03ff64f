"""What Python 3.11 brought, for clusters that have 3.10: drivers and executors load this package there."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from enum import Enum
from typing import Any

UTC = timezone.utc
"""What `datetime.UTC` is since 3.11."""

_FRACTION = re.compile(r"(?<=\d)[.,](\d+)")


class StrEnum(str, Enum):
    """What `enum.StrEnum` is since 3.11: members are strings, and are written as their values."""

    __str__ = str.__str__


def add_note(error: BaseException, note: str) -> None:
    """What `BaseException.add_note` does since 3.11; before, the note is kept and not printed."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.__dict__.setdefault("__notes__", []).append(note)


def parse_time(text: str) -> datetime:
    """What `datetime.fromisoformat` gives since 3.11: also of a `Z`, and of any number of decimals.

    Raises:
        ValueError: The text is no ISO-8601 time.
    """
    if sys.version_info >= (3, 11):
        return datetime.fromisoformat(text)
    if text.endswith(("Z", "z")):
        text = f"{text[:-1]}+00:00"
    return datetime.fromisoformat(_FRACTION.sub(lambda found: f".{found[1][:6]:<06}", text))


def parse_toml(text: str) -> Mapping[str, Any]:
    """What `tomllib.loads` gives since 3.11; before, the package tomli must be installed.

    Raises:
        ValueError: The text is no TOML (`tomllib.TOMLDecodeError`).
        ModuleNotFoundError: Python 3.10 without tomli.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)
