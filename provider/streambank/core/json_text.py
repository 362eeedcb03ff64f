"""JSON from elsewhere: what this engine cannot work with is a ValueError, as what is no JSON is.

Python's own reader raises RecursionError for `[[[[...`, and gives whole numbers of thousands of digits and
infinite floats, at which a computation fails later, and halves of characters, which cannot be
written again; and it says nothing of the file.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
MOST_DIGITS = 300
"""Of a whole number: one that no float could hold is of no use to anybody."""


def loads(text: str | bytes | bytearray) -> Any:
    """What `json.loads` gives.

    Raises:
        ValueError: It is no JSON, is nested too deeply, has a number beyond the range of a float, or a text
            that no file can hold.
    """
    whole = text if isinstance(text, str) else text.decode("utf-8-sig")
    try:
        found = _DECODER.decode(whole)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if _HALF.search(whole) is not None:
        _refuse_halves(found)
    return found


def _refuse_halves(value: Any) -> None:
    """Half of a character, which JSON can escape and no file can hold."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise ValueError("it has half of a character in it, or is nested too deeply") from error


def is_whole_number(text: str) -> bool:
    """Whether a text is a whole number, without a sign, that `int` reads and a float could hold."""
    return text.isdecimal() and len(text) <= MOST_DIGITS


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is too large")
    return int(digits)


def _float(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"the number {text[:20]} is too large")
    return found


def _constant(name: str) -> float:
    if name != "NaN":
        raise ValueError(f"{name} is no number")
    return math.nan


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_float, parse_constant=_constant)
