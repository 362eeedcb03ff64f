"""What an operation says while it waits for somebody else, for whoever looks on."""

from __future__ import annotations

import time
from collections.abc import Callable

Tell = Callable[[str], None]
"""Told what is waited for at every look; the same text means that the same wait goes on."""


def to_nobody(text: str) -> None:
    """Nobody looks on."""


class Lines:
    """Lets a log or a terminal say what is waited for: once, and again while it lasts.

    Args:
        say: Writes a line.
        every_s: How often a wait that goes on is said again, in seconds.
    """

    def __init__(self, say: Tell, every_s: float) -> None:
        self._say = say
        self._every_s = every_s
        self._text = ""
        self._began_s = self._said_s = 0.0

    def __call__(self, text: str) -> None:
        """See `Tell`."""
        now = time.monotonic()
        if text != self._text:
            self._text, self._began_s = text, now
            self._say(f"{text} ...")
        elif now - self._said_s >= self._every_s:
            self._say(f"{text}: {now - self._began_s:.0f} s so far ...")
        else:
            return
        self._said_s = now
