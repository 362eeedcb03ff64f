"""JSON from elsewhere: what this engine cannot work with is a ValueError, as what is no JSON is.

Python's own reader raises RecursionError for `[[[[...`, and gives whole numbers of thousands of digits and
infinite floats, at which a computation fails later, and halves of characters, which cannot be
written again; and it says nothing of the file. What it makes of a text may take 44 times the text's memory.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
MOST_DIGITS = 300
"""Of a whole number: one that no float could hold is of no use to anybody."""
MOST_MEMORY_BYTES = 150 << 20
"""What a text and the values in it may take; no JSON that Spark or Streambank writes comes near."""
_SMALL_CHARACTERS = 2 << 20
_COSTS_BYTES = {"[": 96, "{": 200, ",": 72, ":": 110}
"""What a value takes beside its characters (CPython 3.11, 64 bits): a list of one, a dictionary of one, a
number or text with its place in a list, a key with its place in a dictionary."""


def loads(text: str | bytes | bytearray) -> Any:
    """What `json.loads` gives.

    Raises:
        ValueError: It is no JSON, is nested too deeply, has a number beyond the range of a float, or a text
            that no file can hold; or it would take more memory than `MOST_MEMORY_BYTES`.
    """
    whole = text if isinstance(text, str) else text.decode("utf-8-sig")
    if len(whole) > _SMALL_CHARACTERS and memory_bytes(whole) > MOST_MEMORY_BYTES:
        raise ValueError(f"reading its {len(whole)} characters would take too much memory")
    try:
        found = _DECODER.decode(whole)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if _HALF.search(whole) is not None:
        _refuse_halves(found)
    return found


def memory_bytes(text: str) -> int:
    """How much memory a text and the values that `loads` makes of it take at most, in bytes."""
    made = sum(text.count(mark) * cost_bytes for mark, cost_bytes in _COSTS_BYTES.items())
    return 2 * sys.getsizeof(text) + made


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
