"""Reading a file chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

from streambank.core.errors import StorageError
from streambank.storage.store import CHUNK_BYTES

CORRUPT = "corrupt-transfer"
"""Code of the error of bytes that did not arrive as they were stored."""
TRANSFER_ATTEMPTS = 3

T = TypeVar("T")


def chunks(reader: BinaryIO, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The rest of a file, in chunks of at most `size_bytes`."""
    while chunk := reader.read(size_bytes):
        yield chunk


def undamaged(move: Callable[[], T]) -> T:
    """Move a file's bytes, again from the beginning where they were damaged on their way.

    A store checks what fits in memory before anybody sees it. Of a larger file it knows only at the end that
    something was wrong with it, when most of the bytes have passed on already: then all of them go again.

    Args:
        move: Opens the file, reads it to its end and leaves nothing behind where that fails.

    Raises:
        StorageError: It was so each time (code `corrupt-transfer`).
    """
    for _ in range(TRANSFER_ATTEMPTS - 1):
        try:
            return move()
        except StorageError as error:
            if error.code != CORRUPT:
                raise
    return move()
