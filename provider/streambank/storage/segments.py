"""Lines appended to rolled, bounded files: `<prefix>/0000000001.jsonl`, `0000000002.jsonl`, ...

A writer never goes on with a file that it did not begin itself, so a line that a dying process left
half-written stays the last line of its file. On a local disk lines are appended; on a store that can only
replace, the current file is small and written whole each time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from streambank.core.errors import ConflictError, NotFoundError, StorageError
from streambank.storage import local_path
from streambank.storage.names import near
from streambank.storage.store import MAX_RECORD_BYTES, Store

_NAME = re.compile(r"(\d{10})\.jsonl")
WHOLE_WRITE_BYTES = 256_000
"""Size of a file on stores that can only replace: it is written again with each flush."""
MOST_AT_ONCE = 16
"""How many files are deleted at most, each time, for their age alone: a clock that jumps ahead for a while
must not cost a whole history."""


def segment_key(prefix: str, number: int) -> str:
    """The key of one file."""
    return f"{prefix}/{number:010d}.jsonl"


def is_segment(name: str) -> bool:
    """Whether a name is that of such a file."""
    return _NAME.fullmatch(name) is not None


def segment_numbers(store: Store, prefix: str) -> list[int]:
    """The numbers of the files that are there, ascending; none that no history leads to."""
    return near(int(match[1]) for name in store.names(prefix) if (match := _NAME.fullmatch(name)))


class SegmentWriter:
    """Appends lines. One writer per driver; other writers begin files of their own.

    Args:
        max_bytes: A file that would get larger is closed and the next one begun; a single longer line gets
            its own.
        max_files: How many files stay; the oldest are deleted. Where files have to be smaller than
            `max_bytes`, since readers take no more at once or the store can only replace, as many more as
            hold the same bytes.
        max_age_s: How long a file stays after its last line; None for as long as there is room.
    """

    def __init__(
        self, store: Store, prefix: str, *, max_bytes: int, max_files: int, max_age_s: float | None = None
    ) -> None:
        self.store = store
        self.prefix = prefix
        root = local_path(store.uri)
        self._folder = None if root is None else root / prefix
        self._max_bytes = min(max_bytes, MAX_RECORD_BYTES if self._folder else WHOLE_WRITE_BYTES)
        self._max_files = max(1, max_files, max_files * max_bytes // self._max_bytes)
        self._max_age_s = max_age_s
        self._number = 0
        self._size_bytes = 0
        self._whole: list[bytes] = []
        self._pending: list[bytes] = []

    def add(self, line: bytes) -> None:
        """Take one line, without its newline; it is there for readers after `flush`."""
        self._pending.append(line + b"\n")

    def flush(self) -> None:
        """Write what was added.

        Raises:
            StorageError: It could not be written; the lines stay and go with the next flush.
        """
        while self._pending:
            room = self._max_bytes - self._size_bytes
            count, size = 0, 0
            for line in self._pending:
                if size + len(line) > room and (count or self._size_bytes):
                    break
                count, size = count + 1, size + len(line)
            if count == 0 or self._number == 0:
                self._roll()
                if count == 0:
                    continue
            self._write(b"".join(self._pending[:count]))
            del self._pending[:count]

    def _write(self, data: bytes) -> None:
        if self._folder is None:
            self._whole.append(data)
            try:
                self.store.write(segment_key(self.prefix, self._number), self._whole)
            except StorageError:
                self._whole.pop()
                raise
        else:
            path = self._folder / f"{self._number:010d}.jsonl"
            if not path.exists():  # rolled away by another writer
                self._roll()
                path = self._folder / f"{self._number:010d}.jsonl"
            _translated(path, lambda: _append(path, data))
        self._size_bytes += len(data)

    def _roll(self) -> None:
        numbers = segment_numbers(self.store, self.prefix)
        number = numbers[-1] if numbers else 0
        while True:
            number += 1
            try:
                self.store.write(segment_key(self.prefix, number), b"", exclusive=True)
                break
            except ConflictError as error:
                if error.code != "exists":
                    raise
        self._number, self._size_bytes, self._whole = number, 0, []
        spent = max(0, len(numbers) + 1 - self._max_files)
        for old in numbers[:spent]:
            self.store.delete(segment_key(self.prefix, old))
        self._delete_aged(numbers[spent:])

    def prune(self) -> None:
        """Delete files that are older than they are kept, never the one that is being written."""
        if self._max_age_s is not None:
            self._delete_aged(
                [number for number in segment_numbers(self.store, self.prefix) if number < self._number]
            )

    def _delete_aged(self, numbers: list[int]) -> None:
        if self._max_age_s is None:
            return
        before_ns = time.time_ns() - int(self._max_age_s * 1e9)
        for number in numbers[:MOST_AT_ONCE]:
            key = segment_key(self.prefix, number)
            try:
                written_ns = self.store.stat(key).mtime_ns
                if written_ns == 0 or written_ns >= before_ns:
                    return  # nobody knows its age, or what follows is younger still
            except NotFoundError:
                continue  # another writer deleted it
            self.store.delete(key)


def _append(path: Path, data: bytes) -> None:
    """Append all bytes, or none. A file that is gone is an error: O_CREAT would bring its number back."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        begin = os.fstat(descriptor).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            os.ftruncate(descriptor, begin)
            raise
    finally:
        os.close(descriptor)


def _translated(path: Path, act: Callable[[], None]) -> None:
    try:
        act()
    except OSError as error:
        raise StorageError(
            f"{path} could not be appended to: {error.strerror or error}.",
            code="progress-not-written",
            hint="Look at the disk's space and permissions; the driver keeps what is not written yet.",
        ) from error
