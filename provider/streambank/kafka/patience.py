"""How long a cluster may let others wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Patience:
    """The time that all questions of one piece of work may wait together.

    Only waiting counts: what is done between two questions takes nothing of it.

    Args:
        seconds: The whole time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._spent_s = 0.0

    @contextmanager
    def waiting(self) -> Iterator[float]:
        """One question; gives the seconds that are left for it, which may be none."""
        began = time.monotonic()
        try:
            yield max(0.0, self.seconds - self._spent_s)
        finally:
            self._spent_s += time.monotonic() - began

    def renew(self) -> None:
        """Another piece of work begins."""
        self._spent_s = 0.0
