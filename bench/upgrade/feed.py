"""The input of both: files of lines, each line a key."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Feed:
    """A folder of files that arrive whole.

    Args:
        folder: The folder; it is made.
        keys: How many keys there are.
        seed: Of the keys that come.
    """

    def __init__(self, folder: Path, keys: int, seed: int = 23) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.keys = keys
        self._random = random.Random(seed)
        self._files = 0
        self._put(range(keys))

    @contextmanager
    def flowing(self, rows_per_s: int, every_s: float) -> Iterator[None]:
        """Let files arrive all the while.

        Args:
            rows_per_s: Rows a second, of keys drawn at random.
            every_s: Seconds from one file to the next.
        """
        over = threading.Event()

        def feed() -> None:
            due = time.monotonic()
            while not over.is_set():
                self._put(self._random.randrange(self.keys) for _ in range(max(1, int(rows_per_s * every_s))))
                due = max(due + every_s, time.monotonic())
                over.wait(due - time.monotonic())

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _put(self, keys: Iterator[int] | range) -> None:
        begun = self.folder / ".begun"
        begun.write_text("".join(f"customer-{key:09d}\n" for key in keys), encoding="ascii")
        begun.rename(self.folder / f"{self._files:07d}.txt")
        self._files += 1
