"""Text from elsewhere (names of files, notes, logs), made safe to show."""

from __future__ import annotations

import re

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")
"""Characters that steer a terminal, break a line, are not seen, or change the order of others.

Not the two joiners (U+200C, U+200D), which Persian, Hindi and others are written with."""
_HALF = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """The same text in one line, with a replacement character for each one that could not be seen."""
    return _HALF.sub("\ufffd", CONTROL.sub("\ufffd", text))
