"""Times and durations as the records and the declaration spell them."""

from __future__ import annotations

import re

from streambank.errors import InputError
from streambank.times import from_json_time, to_json_time, utc_now

__all__ = ["from_json_time", "parse_duration_s", "to_json_time", "utc_now"]

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration_s(text: str) -> float:
    """Seconds of a duration such as `90s`, `5m`, `1h30m`, `250ms` or `7d`.

    Raises:
        InputError: It is not spelled like that (code `bad-duration`). A bare number is refused: it has no
            unit.
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InputError(
            f"{text!r} is no duration.",
            code="bad-duration",
            hint='Write a number and a unit (ms, s, m, h, d), such as "60s", "5m" or "1h30m".',
        )
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
