"""Values in the bytes of an UnsafeRow, as state stores keep keys and values.

A row is a bitmap of nulls, a word of eight bytes for each field, and behind them what does not fit into a
word, named in the word by offset and size. Numbers are little-endian (Spark: UnsafeRow, UnsafeRowWriter).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

_WORD = 8
_NUMBERS = {
    "boolean": "<?",
    "byte": "<b",
    "short": "<h",
    "integer": "<i",
    "date": "<i",
    "long": "<q",
    "timestamp": "<q",
    "timestamp_ntz": "<q",
    "float": "<f",
    "double": "<d",
}

Leaf = tuple[str, str, Any]
"""Path of a field (`session_window.start`), its type, its value; times in microseconds since the epoch."""


def leaves(data: bytes, kind: Mapping[str, Any]) -> tuple[Leaf, ...] | None:
    """The fields of a row and of structs in it, by Spark's JSON of its type.

    The value of an array, a map or another type that is not decoded is its bytes. None where the bytes are
    not such a row, as where Avro or a checksum is used.
    """
    try:
        return tuple(_leaves(data, kind, ""))
    except (struct.error, ValueError):
        return None


def _leaves(data: bytes, kind: Mapping[str, Any], above: str) -> Iterator[Leaf]:
    fields = kind["fields"]
    bitmap_bytes = (len(fields) + 63) // 64 * _WORD
    begin = bitmap_bytes + len(fields) * _WORD
    if len(data) % _WORD or len(data) < begin:
        raise ValueError("it has another size")
    for place, field in enumerate(fields):
        word = data[bitmap_bytes + place * _WORD :][:_WORD]
        name, of = f"{above}{field['name']}", field["type"]
        nested = isinstance(of, dict) and of.get("type") == "struct"
        if data[place >> 3] & 1 << (place & 7):
            if not nested:
                yield name, str(of), None
        elif isinstance(of, str) and of in _NUMBERS:
            yield name, of, struct.unpack_from(_NUMBERS[of], word)[0]
        elif of == "string" or not isinstance(of, str):
            size, offset = struct.unpack("<II", word)
            if offset < begin or offset + size > len(data):
                raise ValueError("a field is outside of it")
            inner = data[offset : offset + size]
            if nested:
                yield from _leaves(inner, of, f"{name}.")
            else:
                yield name, str(of), inner.decode("utf-8") if of == "string" else inner
        else:
            yield name, of, word
