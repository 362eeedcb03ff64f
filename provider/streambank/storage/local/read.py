"""Reading local files by descriptor: whole ranges, and files held open while somebody may delete them."""

from __future__ import annotations

import io
import os
from contextlib import AbstractContextManager
from typing import BinaryIO, cast

from streambank.storage.local.errors import translate_read
from streambank.storage.local.root import file_info
from streambank.storage.store import CHUNK_BYTES, FileInfo


class LocalHeld:
    """An open descriptor; see `HeldFile`. The bytes stay readable after their name is deleted."""

    def __init__(self, path: str, descriptor: int, info: FileInfo) -> None:
        self._path = path
        self._descriptor = descriptor
        self._info = info

    @property
    def info(self) -> FileInfo:
        return self._info

    def open(self) -> AbstractContextManager[BinaryIO]:
        return cast("BinaryIO", _DescriptorReader(self._path, self._descriptor, self._info.size_bytes))

    def current(self) -> FileInfo:
        try:
            return file_info(self._info.path, os.fstat(self._descriptor))
        except OSError as error:
            raise translate_read(error, self._path) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _DescriptorReader(io.RawIOBase):
    """Reads a descriptor by position, so that several readers of one held file do not disturb each other.

    Args:
        size_bytes: How long it was; asking for much more than that would only reserve memory.
    """

    def __init__(self, path: str, descriptor: int, size_bytes: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position}
        start = starts[whence] if whence in starts else os.fstat(self._descriptor).st_size
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        likely = max(self._size_bytes - self._position, 0) + 1  # one more shows that it grew
        try:
            data = os.pread(self._descriptor, min(size, likely), self._position)
        except OSError as error:
            raise translate_read(error, self._path) from error
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(CHUNK_BYTES), b""))

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # not every Buffer
        try:
            count = os.preadv(self._descriptor, [buffer], self._position)
        except OSError as error:
            raise translate_read(error, self._path) from error
        self._position += count
        return count


def buffered(path: str, descriptor: int, size_bytes: int) -> BinaryIO:
    """A reader of a descriptor, which stays open, for those who read lines or other small steps."""
    return io.BufferedReader(_DescriptorReader(path, descriptor, size_bytes))


def read_range(descriptor: int, offset: int, length: int) -> bytes:
    """Bytes from an offset, fewer only where the file ends; the kernel may answer in parts."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    read = len(data)
    while read < length and (data := os.pread(descriptor, length - read, offset + read)):
        parts.append(data)
        read += len(data)
    return b"".join(parts)
