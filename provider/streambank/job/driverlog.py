"""A driver's log, kept within bounds while two processes write to it.

Java and Python write to the same inherited descriptor, opened for appending, so the file cannot be replaced
under them. It is copied aside and emptied in place: what is appended next begins at byte 0 again. Whatever is
written in the instant between the end of the copy and the emptying is lost; nothing else is.

The runner calls `rotate_if_needed` for as long as the driver lives; nobody else has to stay alive for it.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from streambank.errors import StorageError

_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 2000


class DriverLog:
    """The log `<path>` with its older parts `<path>.1` (newest) to `<path>.<files>`.

    Args:
        path: The file that the driver appends to.
        max_bytes: Rotate when it is larger.
        files: How many older parts are kept.
    """

    def __init__(self, path: Path, *, max_bytes: int, files: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.files = max(1, files)

    def part(self, number: int) -> Path:
        """An older part; 1 is the newest."""
        return self.path.with_name(f"{self.path.name}.{number}")

    def rotate_if_needed(self) -> bool:
        """Rotate where the log has grown too large.

        Returns:
            Whether it was rotated.

        Raises:
            StorageError: The disk refused (code `log-not-rotated`).
        """
        try:
            if self.path.stat().st_size <= self.max_bytes:
                return False
            for number in range(self.files, 1, -1):
                if self.part(number - 1).exists():
                    self.part(number - 1).replace(self.part(number))
            self._copy_and_empty()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(
                f"The driver log {self.path} could not be rotated: {error.strerror or error}.",
                code="log-not-rotated",
                hint="Look at the disk's space and permissions.",
            ) from error
        return True

    def _copy_and_empty(self) -> None:
        with self.path.open("r+b", buffering=0) as log, self.part(1).open("wb", buffering=0) as part:
            # Where a burst has made it far too large, only its end is kept.
            log.seek(max(0, os.fstat(log.fileno()).st_size - 2 * self.max_bytes))
            while chunk := log.read(_CHUNK_BYTES):
                part.write(chunk)
            log.truncate(0)

    def last_lines(self, count: int) -> list[str]:
        """The last lines, over the seam of a rotation, each cut at 2,000 bytes; none without a log."""
        lines: deque[str] = deque()
        for path in (self.path, *(self.part(number) for number in range(1, self.files + 1))):
            if len(lines) >= count:
                break
            lines.extendleft(reversed(_tail(path, count - len(lines))))
        return list(lines)


def _tail(path: Path, count: int) -> list[str]:
    try:
        with path.open("rb") as log:
            size_bytes = os.fstat(log.fileno()).st_size
            begin = max(0, size_bytes - count * _LINE_BYTES)
            log.seek(begin)
            lines = log.read().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(
            f"The driver log {path} could not be read: {error.strerror or error}.", code="log-not-read"
        ) from error
    whole = lines[1:] if begin and len(lines) > 1 else lines
    return [line[:_LINE_BYTES].decode("utf-8", "replace") for line in whole[-count:]]
