"""How many rows a data file holds, where its format tells without a query engine.

Parquet says it in its footer; a line of JSON or text is a row. CSV (quoted line ends, headers), ORC, Avro
and compressed text are not counted.
"""

from __future__ import annotations

from streambank.core.errors import NotFoundError
from streambank.storage.store import CHUNK_BYTES, Store

_PARQUET_MAGIC = b"PAR1"
_PARQUET_TAIL_BYTES = 8
_MAX_FOOTER_BYTES = 64 << 20


def count_rows(store: Store, key: str) -> int | None:
    """Rows of one data file; None where its format does not tell, or the file is damaged or gone."""
    try:
        if key.endswith(".parquet"):
            return _parquet_rows(store, key)
        if key.endswith((".json", ".txt")):
            return _lines(store, key)
    except NotFoundError:
        return None
    return None


def _lines(store: Store, key: str) -> int:
    lines, last = 0, b"\n"
    with store.open(key) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n")


def _parquet_rows(store: Store, key: str) -> int | None:
    size = store.stat(key).size_bytes
    if size < 2 * len(_PARQUET_MAGIC) + 4:
        return None
    tail = store.read(key, size - _PARQUET_TAIL_BYTES, _PARQUET_TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _PARQUET_MAGIC or not 0 < length <= min(size - 12, _MAX_FOOTER_BYTES):
        return None
    footer = store.read(key, size - _PARQUET_TAIL_BYTES - length, length)
    try:
        rows = _Thrift(footer).field(_NUM_ROWS)
    except (IndexError, ValueError):
        return None
    return rows if rows is not None and rows >= 0 else None


_NUM_ROWS = 3
"""Field of Parquet's FileMetaData: version, schema, num_rows, ... (parquet.thrift)."""


class _Thrift:
    """Just enough of Thrift's compact protocol to step over fields until the one that is wanted."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def field(self, wanted: int) -> int | None:
        """An integer field of the outermost structure; None where there is none.

        Raises:
            IndexError, ValueError: These bytes are no such structure.
        """
        number = 0
        while (header := self._byte()) != 0:
            kind, delta = header & 0x0F, header >> 4
            number = number + delta if delta else self._zigzag()
            if number == wanted:
                if kind not in (4, 5, 6):
                    raise ValueError(f"field {wanted} is not an integer")
                return self._zigzag()
            self._skip(kind)
        return None

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int, depth: int = 0) -> None:
        if depth > 32:
            raise ValueError("nested too deeply")
        if kind in (1, 2):  # true and false have no bytes of their own inside a structure
            return
        if kind == 3:
            self._at += 1
        elif kind in (4, 5, 6):
            self._varint()
        elif kind == 7:
            self._at += 8
        elif kind == 8:
            length = self._varint()  # moves on by itself, so it must be known before the next line
            self._at += length
        elif kind in (9, 10):
            self._skip_list(depth)
        elif kind == 12:
            self._skip_struct(depth)
        else:
            raise ValueError(f"unexpected type {kind}")

    def _skip_list(self, depth: int) -> None:
        header = self._byte()
        size, kind = header >> 4, header & 0x0F
        if size == 15:
            size = self._varint()
        for _ in range(size):
            if kind in (1, 2):
                self._at += 1
            else:
                self._skip(kind, depth + 1)
            if self._at > len(self._data):
                raise ValueError("cut off")

    def _skip_struct(self, depth: int) -> None:
        while (header := self._byte()) != 0:
            if header >> 4 == 0:
                self._zigzag()
            self._skip(header & 0x0F, depth + 1)
