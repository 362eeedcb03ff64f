"""What single batches changed in a state store: the rows of a delta or a changelog, without Spark.

HDFS-backed deltas and snapshots, and changelogs of version 1 and 3, are rows of size and key, size and value,
with big-endian sizes; -1 for the value's size says that the key is gone, -1 for the key's size ends the file.
Changelogs of version 2 and 4, which stores with column families have, begin each row with a byte for what it
does, and each key with the number of its column family, a little-endian short (Spark:
HDFSBackedStateStoreProvider, StateStoreChangelogWriterV1 and V2, RecordType). Versions 3 and 4 have a lineage
before the rows. RocksDB's keys and values begin with a byte for how they are encoded; 0 is UnsafeRow. The
elements of a list stand one after the other, each behind its size, a little-endian integer (Spark:
ListStateImpl, RocksDBStateEncoder).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from streambank.checkpoint.state.changelog import decompress_head
from streambank.checkpoint.text import half_written
from streambank.core.errors import FormatError

_SIZE = struct.Struct(">i")
_END = -1
_DAMAGED = "The file is damaged: verify the savepoint, or use another one."
_ACTIONS: dict[int, Literal["put", "delete", "merge"]] = {0x01: "put", 0x10: "delete", 0x11: "merge"}
_EOF = 0x00
_TYPED, _WITH_LINEAGE = ("v2", "v4"), ("v3", "v4")


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row that a batch changed.

    Attributes:
        action: `put` replaces the value of the key, `merge` adds an element to it (a list), `delete` removes
            the key.
        family: The number of the column family; None for a store without.
    """

    action: Literal["put", "delete", "merge"]
    family: int | None
    key: bytes
    value: bytes


def hdfs_rows(data: bytes, path: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of each row in the plain bytes of a delta or a snapshot; None for a key that is gone.

    Raises:
        FormatError: It is damaged (code `half-written`).
    """
    position = 0
    unpack = _SIZE.unpack_from
    try:
        while (size := unpack(data, position)[0]) != _END:
            start = position + 4
            position = start + _known_size(size, path)
            key = data[start:position]
            size = unpack(data, position)[0]
            position += 4
            if size == _END:
                yield key, None
                continue
            _known_size(size, path)
            value = data[position : position + size]
            position += size
            if position > len(data):
                raise half_written(f"{path} ends within a row.", _DAMAGED)
            yield key, value
    except struct.error as error:
        raise half_written(f"{path} ends without its end mark.", _DAMAGED) from error


def _known_size(size: int, path: str) -> int:
    if size < 0:
        raise half_written(f"{path} has a row of {size} bytes.", _DAMAGED)
    return size


def head_of_changes(data: bytes, path: str, most_bytes: int) -> tuple[RowChange, ...]:
    """The changes that are whole in the first bytes of a delta, a snapshot or a changelog, as its path says.

    Raises:
        UnreadableLineageError: Its codec is none of lz4 and zstd, or zstd is not installed.
        FormatError: It is damaged (code `half-written`).
    """
    plain = decompress_head(data, most_bytes, path)
    found: list[RowChange] = []
    try:
        for change in _changes(plain, path):
            found.append(change)
    except FormatError:
        if len(plain) < most_bytes:  # else it goes on behind what was read
            raise
    return tuple(found)


def _changes(plain: bytes, path: str) -> Iterator[RowChange]:
    version, start = "v1", 0
    if path.endswith(".changelog") and plain[2:3] == b"v":  # a row of version 1 has its key's size there
        version, start = plain[2:4].decode("ascii", "replace"), 4
        if version in _WITH_LINEAGE:
            start += 2 + int.from_bytes(plain[start : start + 2], "big")
    if version not in _TYPED:
        for key, value in hdfs_rows(plain[start:], path):
            yield (
                RowChange("put", None, key, value)
                if value is not None
                else RowChange("delete", None, key, b"")
            )
        return
    position = start
    try:
        while plain[position] != _EOF:
            action = _ACTIONS.get(plain[position])
            if action is None:
                raise FormatError(
                    f"{path} has a row of the unknown kind {plain[position]}.",
                    code="unknown-version",
                    hint="A newer Spark wrote it: report the Spark version.",
                )
            size = _known_size(_SIZE.unpack_from(plain, position + 1)[0], path)
            key = plain[position + 5 : position + 5 + size]
            position += 5 + size
            size = max(0, _SIZE.unpack_from(plain, position)[0])
            value = plain[position + 4 : position + 4 + size]
            position += 4 + size
            if position > len(plain):
                raise half_written(f"{path} ends within a row.", _DAMAGED)
            yield RowChange(action, int.from_bytes(key[:2], "little"), key[2:], value)
    except (struct.error, IndexError) as error:
        raise half_written(f"{path} ends without its end mark.", _DAMAGED) from error


def elements(value: bytes) -> tuple[bytes, ...]:
    """The elements in the value of a `put` or `merge` of a ListState; none in a value of another kind."""
    found: list[bytes] = []
    position = 0
    while position + 4 <= len(value):
        end = position + 4 + int.from_bytes(value[position : position + 4], "little")
        found.append(value[position + 4 : end])
        position = end
    return tuple(found) if position == len(value) else ()
