"""Sizes as people write them: `10GB` is 10 * 10^9 bytes, `10GiB` 10 * 2^30."""

from __future__ import annotations

import re

from streambank.core.errors import InputError

UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
    "KB": 1000,
}
"""Bytes of each unit."""

_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[kKMGT]?i?B)")
_SHOWN = ("B", "kB", "MB", "GB", "TB")


def parse_bytes(text: str) -> int:
    """Bytes of a size such as `10GB`, `1.5 GiB` or `800kB`.

    Raises:
        InputError: It is not spelled like that (code `bad-size`). A bare number is refused: it has no unit.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match["unit"] not in UNITS:
        raise InputError(
            f"{text!r} is no size.",
            code="bad-size",
            hint='Write a number and a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), such as "10GB".',
        )
    return int(float(match["number"]) * UNITS[match["unit"]])


def say_bytes(size_bytes: float) -> str:
    """A size for people, with three digits: `1.23 GB`, in powers of 1000."""
    for power, unit in enumerate(_SHOWN):
        if abs(size_bytes) < 999.5 * 1000**power or unit == _SHOWN[-1]:
            return f"{size_bytes / 1000**power:.3g} {unit}"
    raise AssertionError("the largest unit takes whatever is left")
