"""How fast bytes may be read, so that a savepoint leaves a disk or a network to those who need it more."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from streambank.core.errors import InputError
from streambank.core.units import UNITS

_RATE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[kKMGT]?i?B)?(?:/s)?")
_BURST_S = 0.1
_MOST_PER_S = 1e24


def parse_rate(text: str) -> int:
    """Bytes per second of a rate as people write it: `50MB/s`, `1.5 GiB/s`, `800kB`.

    Raises:
        InputError: It is none, or less than a byte per second (code `bad-rate`).
    """
    match = _RATE.fullmatch(text.strip())
    factor = UNITS.get(match["unit"] or "B") if match else None
    bytes_per_s = float(match["number"]) * factor if match and factor else 0
    if not 1 <= bytes_per_s < _MOST_PER_S:
        raise InputError(
            f"{text!r} is not a rate.",
            code="bad-rate",
            hint="Give bytes per second with a unit, such as 50MB/s (units: B, kB, MB, GB, KiB, MiB, GiB).",
        )
    return int(bytes_per_s)


def check_parallel(parallel: int | None) -> None:
    """Make sure that a number of threads is one, where there is one.

    Raises:
        InputError: It is less than 1 (code `bad-input`).
    """
    if parallel is not None and parallel < 1:
        raise InputError(
            f"The number of files at once must be at least 1, not {parallel}.",
            code="bad-input",
            hint="Leave it out to use the best number.",
        )


class RateLimit:
    """A token bucket for any number of threads.

    Raises:
        InputError: The rate is not positive (code `bad-rate`).
    """

    def __init__(
        self,
        bytes_per_s: int | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if bytes_per_s is not None and bytes_per_s < 1:
            raise InputError(
                f"A rate must be at least 1 byte per second, not {bytes_per_s}.",
                code="bad-rate",
                hint="Give 1 or more, or leave it out for no limit.",
            )
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at_s = 0.0

    def spend(self, size_bytes: int) -> None:
        """Wait until so many bytes may be read; threads are served in the order in which they ask."""
        if self._bytes_per_s is None or size_bytes <= 0:
            return
        with self._lock:
            now_s = self._clock()
            # What was not used for a while may be caught up with, but only for a moment.
            self._free_at_s = max(self._free_at_s, now_s - _BURST_S)
            self._free_at_s += size_bytes / self._bytes_per_s
            wait_s = self._free_at_s - now_s
        if wait_s > 0:
            self._sleep(wait_s)


UNLIMITED = RateLimit(None)


@dataclass(frozen=True, slots=True)
class Step:
    """How far one phase is."""

    phase: str
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


Progress = Callable[[Step], None]
"""Gets each step; must be quick, and must not raise."""


LOCK = "lock"
"""The phase in which what a savepoint is made of is locked, or its locks extended."""


def counted(progress: Progress | None, phase: str) -> Callable[[int, int], None] | None:
    """A callback that is given how many files of how many are done, as one that gets steps; None for none."""
    if progress is None:
        return None
    return lambda done, total: progress(Step(phase, done, total, 0, 0))


class Meter:
    """Counts a phase and tells the callback."""

    def __init__(self, progress: Progress | None, phase: str, files: int, size_bytes: int) -> None:
        self._progress = progress
        self._phase = phase
        self._files_total = files
        self._bytes_total = size_bytes
        self._files = 0
        self._bytes = 0
        self._lock = threading.Lock()
        self.add(0, 0)

    def add(self, files: int, size_bytes: int) -> None:
        if self._progress is None:
            return
        with self._lock:
            self._files += files
            self._bytes += size_bytes
            self._progress(Step(self._phase, self._files, self._files_total, self._bytes, self._bytes_total))


LOWEST = 19
"""The niceness of work that gives way to all other; the kernel derives the priority of its reads from it."""


def give_way() -> None:
    """Let this process give way from now on, for good: only root may take priority back.

    On Linux it is this thread, and those that it begins from here on.
    """
    os.setpriority(os.PRIO_PROCESS, 0, LOWEST)
