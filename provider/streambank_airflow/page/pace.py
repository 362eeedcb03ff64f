"""How often the watches of one process keep their pages: each minute, or less often if it costs too much.

Pages are made in the triggerer, whose event loop and whose watches must not wait for them. So what all
watches of a process spend on their pages is bounded: by a share of one processor, and by a share of the time
of the threads that make them. Where a page a minute would be more than that, the interval of all of them
stretches, and each line says when the next one is due.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from weakref import WeakSet

LINE_EVERY_S = 60.0
"""How often a watch keeps the line, in seconds, where that is not too much."""
LINES_TO_ALL = 10
"""After so many intervals it keeps all parts."""
MOST_EVERY_S = 1800.0
"""The longest interval, in seconds."""
THREADS = 4
"""How many pages a triggerer makes at once, whatever the number of its jobs: others wait for their turn."""
PROCESSOR_SHARE = 0.25
"""Of one processor, for the pages of all watches."""
THREADS_SHARE = 0.5
"""Of the time of the threads: the rest is for what does not come evenly."""
SPREAD = 0.1
"""By which share an interval is longer or shorter: what begins together must not stay together."""
_WEIGHT = 0.05
"""Of the newest measurement in what a page costs."""
_MOST_S = 10.0
"""A measurement counts for no more, in seconds: storage that hangs for some jobs must not slow all."""


@dataclass(slots=True)
class Cost:
    """What it costs to make and keep a line, or all parts.

    Attributes:
        processor_s: Seconds of a processor.
        thread_s: Seconds of a thread, those in which it waits for storage or for Airflow included.
    """

    processor_s: float
    thread_s: float

    def measured(self, processor_s: float, thread_s: float) -> None:
        """Take another measurement into the mean."""
        self.processor_s += (min(processor_s, _MOST_S) - self.processor_s) * _WEIGHT
        self.thread_s += (min(thread_s, _MOST_S) - self.thread_s) * _WEIGHT


class WatchPace:
    """The pace of the watches of one process.

    Args:
        spread: Gives a number between two, by chance.

    Attributes:
        line: What a line costs, as a mean of the newest.
        whole: What all parts cost.
    """

    def __init__(self, spread: Callable[[float, float], float] = random.uniform) -> None:
        self._spread = spread
        self.line, self.whole = Cost(0.02, 0.1), Cost(0.2, 1.0)
        self._watches: WeakSet[object] = WeakSet()
        self._free_at = 0.0
        self._lock = Lock()

    def join(self, watch: object, now: float) -> float:
        """Take part, for as long as the watch is there.

        Args:
            now: Seconds on a clock that never jumps, the same for all watches.

        Returns:
            When its first line is due. That of one watch is due at once; those of a triggerer that starts
            and gets a thousand, one after the other.
        """
        with self._lock:
            self._watches.add(watch)
            due_at = max(self._free_at, now)
            self._free_at = due_at + min(_share_of(self.line), MOST_EVERY_S / len(self._watches))
            return due_at

    def every_s(self) -> float:
        """The interval between two lines of a job, in seconds, as it is at present."""
        with self._lock:
            of_one = _share_of(self.line) + _share_of(self.whole) / LINES_TO_ALL
            return min(max(LINE_EVERY_S, len(self._watches) * of_one), MOST_EVERY_S)

    def next_s(self) -> float:
        """After how many seconds the next line is due."""
        return self.every_s() * self._spread(1 - SPREAD, 1 + SPREAD)

    def kept(self, whole: bool, processor_s: float, thread_s: float) -> None:
        """Note what a page has cost.

        Args:
            whole: Whether all parts were made.
        """
        with self._lock:
            (self.whole if whole else self.line).measured(processor_s, thread_s)


def _share_of(cost: Cost) -> float:
    """Seconds after which the next page may be made, so that their share is not exceeded."""
    return max(cost.processor_s / PROCESSOR_SHARE, cost.thread_s / (THREADS * THREADS_SHARE))
