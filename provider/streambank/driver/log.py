"""A driver's log, kept within bounds while two processes write to it.

Java and Python write to the same inherited descriptor, opened for appending, so the file cannot be replaced
under them. Its beginning is copied aside and then cut off in place by Linux's FALLOC_FL_COLLAPSE_RANGE
(fallocate(2)): the kernel takes whole blocks out of the file under the same lock that writes take, so an
append comes before or after it and not a byte is lost. A part may end in the middle of a line, whose rest
begins the next one. A crash between the two leaves the copied lines in both files.

Where the file system cannot do that (tmpfs, network disks; ext4 and XFS can), the log is copied and emptied:
what is written in the instant between is lost there.

The runner calls `rotate_if_needed` for as long as the driver lives; nobody else has to stay alive for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from io import FileIO
from pathlib import Path

from streambank.core.errors import StorageError
from streambank.storage.local.errors import translate

_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 2000


class RotatedLog:
    """The log `<path>` with its older parts `<path>.1` (newest) to `<path>.<files>`.

    Args:
        path: The file that the driver appends to.
        max_bytes: Rotate when it is larger; less than one block of the disk (4 KiB) of it may stay.
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

        Raises:
            StorageError: The disk refused (code `log-not-rotated`).
        """
        try:
            with self.path.open("r+b", buffering=0) as log:
                rotations = 0
                while os.fstat(log.fileno()).st_size > self.max_bytes and rotations < self.files:
                    self._rotate(log)
                    rotations += 1
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(
                f"The driver log {self.path} could not be rotated: {error.strerror or error}.",
                code="log-not-rotated",
                hint="Look at the disk's space and permissions.",
            ) from error
        return rotations > 0

    def say(self, line: str) -> None:
        """Append a line, past the JVM through which all else comes; nothing where there is no log."""
        from streambank.storage.local.write import write_all

        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                write_all(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            raise translate(error, str(self.path)) from error

    def _rotate(self, log: FileIO) -> None:
        """Move the beginning of the log into a separate part; a burst gets several of them.

        A full disk must not cost the older parts: none is touched before the copy is there, but the oldest,
        which is what makes room for it.
        """
        self.part(self.files).unlink(missing_ok=True)
        size_bytes = whole_blocks(log.fileno(), 2 * self.max_bytes)
        copy = self.part(0)
        try:
            with copy.open("wb", buffering=0) as part:
                _copy(log, part, 0, size_bytes)
                if size_bytes == 0 or not cut_off_beginning(log.fileno(), size_bytes):
                    # Where a burst has made it far too large, only its end is kept.
                    part.truncate(0)
                    part.seek(0)
                    _copy(log, part, max(0, os.fstat(log.fileno()).st_size - 2 * self.max_bytes), None)
                    log.truncate(0)
        except OSError:
            copy.unlink(missing_ok=True)
            raise
        for number in range(self.files, 0, -1):
            if self.part(number - 1).exists():
                self.part(number - 1).replace(self.part(number))

    def last_lines(self, count: int) -> list[str]:
        """The last lines, over the seam of a rotation, each cut at 2,000 bytes; none without a log."""
        wanted_bytes, data = count * _LINE_BYTES, b""
        for path in (self.path, *(self.part(number) for number in range(1, self.files + 1))):
            tail = _tail(path, wanted_bytes - len(data))
            data = tail + data
            if len(data) >= wanted_bytes or data.count(b"\n") > count:
                break
        lines = data.splitlines()
        whole = lines[1:] if len(data) >= wanted_bytes and len(lines) > 1 else lines
        return [line[:_LINE_BYTES].decode("utf-8", "replace") for line in whole[-count:]]


def _copy(log: FileIO, part: FileIO, begin: int, end: int | None) -> None:
    """Append bytes of the log to a part; all to its end for None."""
    log.seek(begin)
    while chunk := log.read(_CHUNK_BYTES if end is None else max(0, min(_CHUNK_BYTES, end - begin))):
        begin += len(chunk)
        view = memoryview(chunk)
        while view:
            view = view[part.write(view) :]


def _tail(path: Path, size_bytes: int) -> bytes:
    try:
        with path.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - size_bytes))
            return log.read(size_bytes)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StorageError(
            f"The driver log {path} could not be read: {error.strerror or error}.",
            code="log-not-read",
            hint="Look at the file, and at who may read it.",
        ) from error


_FALLOC_FL_COLLAPSE_RANGE = 0x08
_NOT_HERE = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM})


def whole_blocks(descriptor: int, at_most: int) -> int:
    """How many bytes at the beginning of a file are whole blocks, which can be cut off; never all of it."""
    block_bytes = os.fstatvfs(descriptor).f_bsize
    return max(0, min(os.fstat(descriptor).st_size - 1, at_most)) // block_bytes * block_bytes


def cut_off_beginning(descriptor: int, size_bytes: int) -> bool:
    """Cut whole blocks off the beginning of a file that is open for writing.

    Args:
        size_bytes: How much, as `whole_blocks` says.

    Returns:
        Whether it was done; False where the file system cannot do it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate", None)
    if fallocate is None:  # another libc
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(descriptor, _FALLOC_FL_COLLAPSE_RANGE, 0, size_bytes) == 0:
        return True
    error = ctypes.get_errno()
    if error in _NOT_HERE:
        return False
    raise OSError(error, os.strerror(error))
