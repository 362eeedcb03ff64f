"""Time zones by name, as people declare them."""

from __future__ import annotations

import difflib
from datetime import tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from streambank.core.errors import InputError
from streambank.core.python310 import UTC

UTC_NAME = "UTC"
"""The default zone; it needs no time zone data."""


def time_zone(name: str) -> tzinfo:
    """The time zone of a name such as `Europe/Berlin`.

    Raises:
        InputError: There is none (code `bad-time-zone`), or this machine has no time zone data in which to
            look it up (`no-time-zones`).
    """
    if name == UTC_NAME:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = available_timezones()
        if not known:
            raise InputError(
                f"This machine has no time zone data, so it does not know {name!r}.",
                code="no-time-zones",
                hint="Install the package tzdata: pip install tzdata.",
            ) from error
        raise InputError(
            f"{name!r} is not a time zone.", code="bad-time-zone", hint=_hint(name, sorted(known))
        ) from error


def check_time_zone(name: str) -> str:
    """The same name, if there is such a time zone.

    Raises:
        InputError: As `time_zone`.
    """
    time_zone(name)
    return name


def _hint(name: str, known: list[str]) -> str:
    cities = [one for one in known if one.rpartition("/")[2].lower() == name.lower().replace(" ", "_")]
    near = cities or difflib.get_close_matches(name, known, 1)
    return f"Did you mean {near[0]}?" if near else "Write a name such as Europe/Berlin."
