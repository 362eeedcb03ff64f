"""A clock for judging whether something stands still, which itself stands still while nobody looks.

A process that was frozen (SIGSTOP, a virtual machine that was paused) finds, when it goes on, that an hour
has passed on every clock of the machine, though it has not seen a second of it. Who then says "nothing has
moved for an hour" is wrong. So the time between two looks counts only up to a bound.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MOST_S = 30.0
"""How much the time between two looks counts at most, in seconds, where nobody says anything else."""


class AwakeClock:
    """Seconds that somebody was looking; safe to use from several threads.

    Args:
        most_s: How much the time between two looks counts at most: more than what lies between two of them
            when all is well.
        monotonic: Seconds on a clock that never jumps; tests give another one.
    """

    def __init__(self, most_s: float = MOST_S, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most_s = most_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._looked_at = monotonic()
        self._now = 0.0

    def now(self) -> float:
        """Seconds since this clock was made, less what nobody has seen of them. This is a look."""
        with self._lock:
            moment = self._monotonic()
            self._now += min(max(0.0, moment - self._looked_at), self._most_s)
            self._looked_at = moment
            return self._now
