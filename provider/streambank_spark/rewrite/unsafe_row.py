"""Rows as the bytes that Spark keeps in state stores: UnsafeRow, encoded from values that SQL prepared.

A row is a bitmap of nulls, a word of eight bytes for each field, and behind them what does not fit into a
word: texts, wide decimals, structs, arrays and maps, each begun at a multiple of eight bytes and named in its
word by offset and size. Numbers are little-endian (Spark: UnsafeRow, UnsafeRowWriter, UnsafeArrayData,
UnsafeMapData). The same values always give the same bytes, so a key can be looked up by them.

Values cross from SQL to Python in plain shapes (`plain`): times as whole numbers, texts as bytes. Time zones,
calendars and encodings of text so play no part.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from streambank.core.errors import RefusedError
from streambank_spark.state.columns import fields_of

Encode = Callable[[Any], bytes]

_WORD = 8
_LONG_DIGITS = 18
"""A decimal of so many digits fits into a word (Decimal.MAX_LONG_DIGITS)."""
_WIDE_BYTES = 16
"""What a wider decimal takes, however small its value is."""
_NUMBERS: dict[type[DataType], str] = {
    BooleanType: "<?",
    ByteType: "<b",
    ShortType: "<h",
    IntegerType: "<i",
    DateType: "<i",
    LongType: "<q",
    TimestampType: "<q",
    TimestampNTZType: "<q",
    FloatType: "<f",
    DoubleType: "<d",
}


def plain(column: Column, kind: DataType) -> Column:
    """A column in the shape that `encoder` takes.

    Raises:
        RefusedError: A type that cannot be encoded (code `key-type`).
    """
    if isinstance(kind, StructType):
        values = zip(fields_of(column, kind), kind.fields, strict=True)
        fields = [plain(value, one.dataType).alias(f"_{n}") for n, (value, one) in enumerate(values)]
        made = F.struct(*fields) if fields else F.struct(F.lit(0))
        return F.when(column.isNotNull(), made)
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        return F.transform(column, lambda each: plain(each, inner))
    if isinstance(kind, MapType):
        key, value = kind.keyType, kind.valueType
        return F.transform(
            F.map_entries(column),
            lambda each: F.struct(
                plain(each["key"], key).alias("_0"), plain(each["value"], value).alias("_1")
            ),
        )
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, TimestampNTZType):
        return _micros_without_zone(column)
    if isinstance(kind, DateType):
        return F.unix_date(column)
    if isinstance(kind, StringType):
        return column.cast("binary")
    if isinstance(kind, (*_NUMBERS, BinaryType, DecimalType, NullType)):
        return column
    raise RefusedError(
        f"A {kind.simpleString()} in a key or a value cannot be written here.",
        code="key-type",
        hint="Keys can be removed from RocksDB state whatever their type: Spark itself rewrites that.",
    )


def _micros_without_zone(column: Column) -> Column:
    """Microseconds since 1970 of a time without a zone; in a zone, some times do not exist."""
    day = F.unix_date(column.cast("date")).cast("long") * 24
    seconds = ((day + F.hour(column)) * 60 + F.minute(column)) * 60
    within = F.extract(F.lit("SECONDS"), column) * 1_000_000
    return seconds * 1_000_000 + within.cast("long")


def encoder(kind: StructType) -> Encode:
    """A function from a row in the shape of `plain` (a tuple of the fields) to the bytes of the UnsafeRow."""
    words = [_word(one.dataType) for one in kind.fields]
    return lambda values: _packed(words, values)


_Word = Callable[[Any, int], tuple[bytes, bytes]]
"""A value, and where what does not fit begins -> its word, and what does not fit."""


def _packed(words: Sequence[_Word], values: Sequence[Any], head: bytes = b"", width: int = _WORD) -> bytes:
    """Values behind a head: a bitmap of nulls, `width` bytes for each, and what does not fit there."""
    bitmap = bytearray((len(values) + 63) // 64 * _WORD)
    fixed: list[bytes] = []
    rest: list[bytes] = []
    padding = bytes(-len(values) * width % _WORD)
    end = len(head) + len(bitmap) + len(values) * width + len(padding)
    for place, (word, value) in enumerate(zip(words, values, strict=True)):
        if value is None:
            bitmap[place >> 3] |= 1 << (place & 7)
        first, tail = word(value, end)
        fixed.append(first[:width])
        rest.append(tail)
        end += len(tail)
    return b"".join((head, bytes(bitmap), *fixed, padding, *rest))


def _word(kind: DataType) -> _Word:
    if isinstance(kind, DecimalType):
        if kind.precision <= _LONG_DIGITS:
            return _small(struct.Struct("<q"), lambda value: _unscaled(value, kind.scale))
        return lambda value, end: _wide(value, kind.scale, end)
    for known, code in _NUMBERS.items():
        if isinstance(kind, known):
            return _small(struct.Struct(code), lambda value: value)
    if isinstance(kind, NullType):
        return lambda value, end: (bytes(_WORD), b"")
    encode = _outside(kind)
    return lambda value, end: (bytes(_WORD), b"") if value is None else _placed(encode(value), end)


def _small(code: struct.Struct, of: Callable[[Any], Any]) -> _Word:
    padding = bytes(_WORD - code.size)

    def word(value: Any, end: int) -> tuple[bytes, bytes]:
        return (bytes(_WORD) if value is None else code.pack(of(value)) + padding), b""

    return word


def _unscaled(value: Decimal, scale: int) -> int:
    """The digits as a whole number; not by arithmetic of Decimal, which rounds to its context's precision."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + scale
    number = int("".join(map(str, digits)))
    number = number * 10**shift if shift >= 0 else number // 10**-shift
    return int(-number if sign else number)


def _wide(value: Decimal | None, scale: int, end: int) -> tuple[bytes, bytes]:
    """Room for sixteen bytes is kept for a null, too, so that it can be filled later."""
    if value is None:
        return struct.pack("<q", end << 32), bytes(_WIDE_BYTES)
    number = _unscaled(value, scale)
    size = ((number if number >= 0 else ~number).bit_length()) // 8 + 1
    data = number.to_bytes(size, "big", signed=True)
    return struct.pack("<q", end << 32 | size), data + bytes(_WIDE_BYTES - size)


def _placed(data: bytes, end: int) -> tuple[bytes, bytes]:
    return struct.pack("<q", end << 32 | len(data)), data + bytes(-len(data) % _WORD)


def _outside(kind: DataType) -> Encode:
    """How a value that does not fit into a word is encoded."""
    if isinstance(kind, StructType):
        return encoder(kind)
    if isinstance(kind, ArrayType):
        return _array(kind.elementType)
    if isinstance(kind, MapType):
        keys, values = _array(kind.keyType), _array(kind.valueType)

        def entries(value: Any) -> bytes:
            packed = keys([each[0] for each in value])
            return struct.pack("<q", len(packed)) + packed + values([each[1] for each in value])

        return entries
    return bytes


def _array(kind: DataType) -> Encode:
    word = _word(kind)
    width = next(
        (struct.calcsize(code) for known, code in _NUMBERS.items() if isinstance(kind, known)), _WORD
    )
    return lambda values: _packed([word] * len(values), values, struct.pack("<q", len(values)), width)
