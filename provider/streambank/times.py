"""Times as every record spells them: ISO-8601 in UTC with `Z`."""

from __future__ import annotations

from datetime import UTC, datetime

from streambank.errors import InputError


def utc_now() -> datetime:
    """The time by this machine's clock, aware and in UTC."""
    return datetime.now(UTC)


def to_json_time(moment: datetime) -> str:
    """ISO-8601 in UTC with `Z` and milliseconds.

    Raises:
        InputError: The datetime carries no time zone (code `bad-time`).
    """
    if moment.tzinfo is None:
        raise InputError(f"The time {moment.isoformat()} has no time zone.", code="bad-time")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_json_time(text: str) -> datetime:
    """The aware UTC datetime that `to_json_time` wrote.

    Raises:
        ValueError: The text is no ISO-8601 time with a time zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.astimezone(UTC)
