"""Reading a file chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from streambank.storage.base import CHUNK_BYTES


def chunks(reader: BinaryIO, size_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The rest of a file, in chunks of at most `size_bytes`."""
    while chunk := reader.read(size_bytes):
        yield chunk
