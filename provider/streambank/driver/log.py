"""A driver's log, kept within bounds while two processes write to it.

Java and Python write to the same inherited descriptor, opened for appending, so the file cannot be replaced
under them. Its beginning is copied aside and then cut off in place: what is written meanwhile stays behind
it, and not a byte is lost. Only whole blocks can be cut off, so a part may end in the middle of a line, whose
rest begins the next one. A crash between the two leaves the copied lines in both files.

Where the file system cannot do that (tmpfs, network disks), the log is copied and emptied: what is written in
the instant between is lost there.

The runner calls `rotate_if_needed` for as long as the driver lives; nobody else has to stay alive for it.

The beginning is cut off by Linux's FALLOC_FL_COLLAPSE_RANGE. The kernel takes whole blocks out of the file
under the same lock that writes take, so an append comes before or after it and none is lost; whoever has
opened the file for appending goes on at its new end. ext4 and XFS can do it, tmpfs and network disks cannot
(fallocate(2)).

The last error of a log is shown elsewhere, without what looks like a secret. A log is read by whoever may
read the driver's host. A failed task's message goes further: to the page, to mail, to a chat. So what follows
a name such as `password` or `access.key`, passwords in addresses, keys of AWS, and the values of this
process's own secret variables are replaced.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path

from streambank.control.control import JobControl
from streambank.core.errors import StorageError

_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 2000


class DriverLog:
    """The log `<path>` with its older parts `<path>.1` (newest) to `<path>.<files>`.

    Args:
        path: The file that the driver appends to.
        max_bytes: Rotate when it is larger; less than one block of the disk (4 KiB) of it may stay.
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

    def _rotate(self, log: FileIO) -> None:
        """Move the beginning of the log into a part of its own; a burst gets several of them."""
        for number in range(self.files, 1, -1):
            if self.part(number - 1).exists():
                self.part(number - 1).replace(self.part(number))
        size_bytes = whole_blocks(log.fileno(), 2 * self.max_bytes)
        with self.part(1).open("wb", buffering=0) as part:
            _copy(log, part, 0, size_bytes)
            if size_bytes == 0 or not cut_off_beginning(log.fileno(), size_bytes):
                # Where a burst has made it far too large, only its end is kept.
                part.truncate(0)
                part.seek(0)
                _copy(log, part, max(0, os.fstat(log.fileno()).st_size - 2 * self.max_bytes), None)
                log.truncate(0)

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
        descriptor: The file.
        size_bytes: How much, as `whole_blocks` says.

    Returns:
        Whether it was done; False where the file system cannot do it.

    Raises:
        OSError: The disk refused.
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


HIDDEN = "***"
_LONGEST = 500
"""Characters of an error that are shown."""
_NEWEST_EVENTS = 100
"""Events among which a failure is looked for."""
_SHORTEST_SECRET = 6
"""A variable with fewer characters is no secret, and would be replaced in the middle of words."""

_NAMES = (
    r"(?:password|passwd|pwd|secret|token|credential|signature|authorization|api[._-]?key|access[._-]?key|"
    r"account[._-]?key|private[._-]?key|connection[._-]?string)"
)
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|(?:Bearer |Basic )?[^\s,;&)\]}]+)"
_NAMED = re.compile(rf"([\w.-]*{_NAMES}[\w.-]*[\"']?\s*(?:=>|[=:])\s*){_VALUE}", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)")
_BEARER = re.compile(r"\b(Bearer|Basic) [A-Za-z0-9+/=._~-]{8,}")
_OF_AWS = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_SECRET_VARIABLE = re.compile(_NAMES, re.IGNORECASE)

_ERROR = re.compile(
    r"(?:Caused by: |: )?(?:[A-Za-z_$][\w$]*\.)*"
    r"[A-Za-z_$][\w$]*(?:Error|Exception|Interrupt|Fault|Refused)\b.*"
)
_LEVEL = re.compile(r"(?:\S+ )?\S+ (?:ERROR|FATAL) \S.*")


def recorded_failure(control: JobControl, launch_id: str, *, whole: bool = False) -> str | None:
    """Why a query of a launch failed, as the runner recorded it; None where it recorded no failure.

    Args:
        control: The job's records.
        launch_id: The launch.
        whole: All of it as it was recorded, to be searched and not to be shown.

    Raises:
        StorageError: The records cannot be read.
    """
    for record in control.event_records.history(newest=_NEWEST_EVENTS):
        event = record.data
        mine = event.get("kind") == "query-ended" and event.get("launch_id") == launch_id
        if mine and event.get("failure"):
            return str(event["failure"]) if whole else shown(str(event["failure"]))
    return None


def last_error(lines: Sequence[str], variables: Mapping[str, str] | None = None) -> str | None:
    """What a log says went wrong last; None for an empty log.

    The last line that begins with the name of an error; else the last one of level ERROR; else the last one.

    Args:
        lines: The end of the log.
        variables: The environment whose secrets are left out; this process's by default.
    """
    said = [line.strip() for line in lines if line.strip()]
    found = next((line for line in reversed(said) if _ERROR.match(line)), None)
    found = found or next((line for line in reversed(said) if _LEVEL.match(line)), None)
    found = found or (said[-1] if said else None)
    # What Python's traceback says of an exception of the JVM begins with its colon.
    return None if found is None else shown(found.removeprefix(": "), variables)


def shown(text: str, variables: Mapping[str, str] | None = None) -> str:
    """A text without what looks like a secret, and not too long."""
    for name, value in (os.environ if variables is None else variables).items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_VARIABLE.search(name):
            text = text.replace(value, HIDDEN)
    text = _NAMED.sub(rf"\g<1>{HIDDEN}", text)
    text = _IN_ADDRESS.sub(rf"\g<1>{HIDDEN}", text)
    text = _BEARER.sub(rf"\g<1> {HIDDEN}", text)
    text = _OF_AWS.sub(HIDDEN, text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
