"""How far long work is: one callback for take, verify and restore, called from whichever thread did it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """How far one phase is.

    Attributes:
        phase: `plan`, `copy`, `check`, `write`, ...
        files_done: Files that are done with.
        files_total: Files of the phase.
        bytes_done: Bytes that are done with.
        bytes_total: Bytes of the phase.
    """

    phase: str
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


Progress = Callable[[Step], None]
"""Gets each step; must be quick, and must not raise."""


class Meter:
    """Counts a phase and tells the callback.

    Args:
        progress: Whom to tell; None for nobody.
        phase: Its name.
        files: Files of the phase.
        size_bytes: Bytes of the phase.
    """

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
        """Some more is done."""
        if self._progress is None:
            return
        with self._lock:
            self._files += files
            self._bytes += size_bytes
            self._progress(Step(self._phase, self._files, self._files_total, self._bytes, self._bytes_total))
