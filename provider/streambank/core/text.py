"""Text from elsewhere (names of files, notes, logs), made safe to show."""

from __future__ import annotations

import re

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, break a line, or change the order in which others are shown."""
_HALF = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """The same text in one line, with a replacement character for each one that could not be seen."""
    return _HALF.sub("\ufffd", CONTROL.sub("\ufffd", text))
