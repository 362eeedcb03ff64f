"""Sizes, times and durations, as people write them and as records carry them.

`10GB` is 10 * 10^9 bytes, `10GiB` 10 * 2^30.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta

from streambank.core.errors import InputError
from streambank.core.python310 import UTC, parse_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""From when milliseconds and hours are counted in records."""
UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
    "KB": 1000,
}
"""Bytes of each unit."""

_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[kKMGT]?i?B)")
_MOST_BYTES = 1e24
_MOST_S = 9999 * 365 * 86_400.0
_SHOWN = ("B", "kB", "MB", "GB", "TB", "PB")


def parse_bytes(text: str) -> int:
    """Bytes of a size such as `10GB`, `1.5 GiB` or `800kB`.

    Raises:
        InputError: It is not spelled like that (code `bad-size`). A bare number is refused: it has no unit.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match["unit"] not in UNITS:
        raise InputError(
            f"{text!r} is not a size.",
            code="bad-size",
            hint='Write a number and a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), such as "10GB".',
        )
    size_bytes = float(match["number"]) * UNITS[match["unit"]]
    if size_bytes > _MOST_BYTES:
        raise InputError(
            f"{text[:40]!r} is more than any storage holds.",
            code="bad-size",
            hint='Write a number and a unit, such as "10GB".',
        )
    return int(size_bytes)


_SPARK_SIZE = re.compile(r"([0-9]+)\s*([bkmgtp]?)b?", re.IGNORECASE)
_SPARK_UNITS = {letter: 1024**power for power, letter in enumerate("bkmgtp")}


def spark_bytes(text: str, unit: int = 1) -> int | None:
    """Bytes of a size in Spark's settings: `10g`, in powers of 1024, or in `unit`; None for another text."""
    match = _SPARK_SIZE.fullmatch(text.strip())
    return None if match is None else int(match[1]) * (_SPARK_UNITS[match[2].lower()] if match[2] else unit)


def parse_any_bytes(text: str) -> int:
    """Bytes of a size with its unit: `10GB` and `10GiB`, or `10g` as in Spark's settings, which is `10GiB`.

    Raises:
        InputError: As `parse_bytes`.
    """
    if text.strip()[-1:] in "kmgtKMGT" and (found := spark_bytes(text)) is not None:
        return found
    return parse_bytes(text)


def say_bytes(size_bytes: float) -> str:
    """A size for people, with three digits: `1.23 GB`, in powers of 1000."""
    for power, unit in enumerate(_SHOWN):
        if abs(size_bytes) < 999.5 * 1000**power or unit == _SHOWN[-1]:
            number = size_bytes / 1000**power
            return f"{number:,.0f} {unit}" if abs(number) >= 999.5 else f"{number:.3g} {unit}"
    raise AssertionError("the largest unit takes whatever is left")


def say_count(number: int, what: str) -> str:
    """A number of things for people: `1 file`, `2 files`, `2 batches`, `2 queries`."""
    several = f"{what}es" if what.endswith("ch") else f"{what}s"
    if what.endswith(("ry", "ty", "py")):
        several = f"{what[:-1]}ies"
    return f"{number:,} {what if number == 1 else several}"


def say_are(number: int) -> str:
    """`1 is`, `2 are`."""
    return f"{number:,} {'is' if number == 1 else 'are'}"


def say_were(number: int) -> str:
    """`1 was`, `2 were`."""
    return f"{number:,} {'was' if number == 1 else 'were'}"


def say_count_are(number: int, what: str) -> str:
    """The same with its verb: `1 file is`, `2 files are`."""
    return f"{say_count(number, what)} {'is' if number == 1 else 'are'}"


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def utc_now() -> datetime:
    """The time by this machine's clock, aware and in UTC."""
    return datetime.now(UTC)


def to_json_time(moment: datetime) -> str:
    """ISO-8601 in UTC with `Z` and milliseconds.

    Raises:
        InputError: The datetime carries no time zone (code `bad-time`).
    """
    if moment.tzinfo is None:
        raise InputError(
            f"The time {moment.isoformat()} has no time zone.",
            code="bad-time",
            hint="Add one, preferably UTC.",
        )
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def say_minute(moment: datetime) -> str:
    """A time for people, by the minute and in UTC: `2026-11-21 03:12Z`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}Z"


def from_json_time(text: str) -> datetime:
    """The aware UTC datetime that `to_json_time` wrote.

    Raises:
        ValueError: The text is no ISO-8601 time with a time zone.
    """
    moment = parse_time(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is beyond the calendar") from error


def time_or_none(value: object) -> datetime | None:
    """The time in a record that somebody wrote; None for anything else."""
    try:
        return from_json_time(value) if isinstance(value, str) else None
    except ValueError:
        return None


def number_or_none(value: object) -> float | None:
    """The finite number in a record that somebody wrote; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if -sys.float_info.max <= value <= sys.float_info.max else None


def from_epoch_ms(moment_ms: int) -> datetime | None:
    """The aware UTC datetime of Spark's milliseconds since 1970; None for what no calendar can say."""
    try:
        return EPOCH + timedelta(milliseconds=moment_ms)
    except OverflowError:
        return None


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as `90s`, `5m`, `1h30m`, `250ms` or `7d`.

    Raises:
        InputError: It is not spelled like that (code `bad-duration`). A bare number is refused: it has no
            unit.
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InputError(
            f"{text!r} is not a duration.",
            code="bad-duration",
            hint='Write a number and a unit (ms, s, m, h, d), such as "60s", "5m" or "1h30m".',
        )
    seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    if seconds > _MOST_S:
        raise InputError(
            f"{text[:40]!r} is longer than a calendar.",
            code="bad-duration",
            hint='Write a number and a unit (ms, s, m, h, d), such as "60s", "5m" or "1h30m".',
        )
    return seconds


def say_duration(seconds: float) -> str:
    """A duration for people, its two largest units: `3 d 4 h`, `1 min 30 s`, `0.25 s`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for large, small, name, below in ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {name}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"
