"""Hours that pass in no time, by the clock that stamps files and by the one that nobody can set."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from streambank.repository import trash
from streambank.storage import memory


class Clock:
    """Stands for the module `time` where the age of files is measured."""

    CLOCK_BOOTTIME = 7

    def __init__(self) -> None:
        self._ahead_ns = 0

    def time_ns(self) -> int:
        """What a store in memory stamps its files with."""
        return time.time_ns() + self._ahead_ns

    def clock_gettime(self, _: int) -> float:
        """The clock that nobody can set."""
        return time.monotonic() + self._ahead_ns / 1e9

    def advance(self, seconds: float, folder: Path | None = None) -> None:
        """Let time pass; files of a local store get as much older."""
        self._ahead_ns += int(seconds * 1e9)
        for path in folder.rglob("*") if folder is not None else ():
            if path.is_file():
                stat = path.stat()
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns - int(seconds * 1e9)))


@contextmanager
def time_travel() -> Iterator[Clock]:
    """A clock that can be advanced, for all stores in memory and everybody who waits for a grace."""
    clock = Clock()
    with patch.object(memory, "time", clock), patch.object(trash, "time", clock):
        yield clock
