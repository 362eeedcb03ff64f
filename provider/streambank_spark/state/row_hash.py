"""Two 64-bit hashes of the content of a row, by which rows are told apart without looking at them.

Spark's `xxhash64` alone is not enough. It passes over nulls, so that (null, 1) and (1, null) are the same to
it; it does not see where one array ends and the next begins; it takes no maps; it goes by what a collation
calls equal and not by the text; and it takes -0.0 for 0.0. So nulls, lengths and negative zeros are hashed
beside the values, texts by their bytes, and maps by their entries in whatever order. It all stays inside
Spark's generated code, at a small share of what reading the state costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VarcharType,
    YearMonthIntervalType,
)

from streambank.core.errors import FormatError
from streambank_spark.state.columns import column, fields_of
from streambank_spark.state.state import PARTITION

SEEDS = (0x5EED_0F_57A7E, 0x0DD_B0B_5EED)
_FLAGS_A_LONG = 62
_PLAIN = (
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    IntegralType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
    *filter(None, [getattr(types, "TimeType", None)]),  # since Spark 4.1
)
_VARIANT: tuple[type, ...] = tuple(filter(None, [getattr(types, "VariantType", None)]))
"""Since Spark 4.0."""
_TEXTS = (CharType, StringType, VarcharType)

Typed = tuple[Column, DataType]


def row_hash(frame: DataFrame) -> tuple[Column, Column]:
    """Two hashes of all columns of a frame but the partition; rows with equal hashes have the same content.

    The names of columns and fields play no part, and neither does which of them may be null.

    Raises:
        FormatError: A column is of a type that is not known (code `unknown-type`).
    """
    first, second = hashes(frame, [name for name in frame.columns if name != PARTITION])
    return first, second


def hashes(frame: DataFrame, names: Sequence[str]) -> tuple[Column, Column]:
    """Two hashes of some columns of a frame."""
    columns: list[Typed] = [(column(name), frame.schema[name].dataType) for name in names]
    first, second = (_hash(seed, columns) for seed in SEEDS)
    return first, second


def _hash(seed: int, columns: Sequence[Typed]) -> Column:
    values: list[Column] = []
    flags: list[Column] = []
    for value, kind in columns:
        for piece in _row_hash_pieces(seed, value, kind):
            (flags if piece[1] else values).append(piece[0])
    return F.xxhash64(F.lit(seed), *_packed(flags), *values)


def _packed(flags: Sequence[Column]) -> Iterator[Column]:
    """Flags as the bits of as few numbers as they fit in."""
    for start in range(0, len(flags), _FLAGS_A_LONG):
        number = F.lit(0).cast("long")
        for bit, flag in enumerate(flags[start : start + _FLAGS_A_LONG]):
            number = number.bitwiseOR(F.when(flag, F.lit(1 << bit).cast("long")).otherwise(F.lit(0)))
        yield number


def _row_hash_pieces(seed: int, value: Column, kind: DataType) -> Iterator[tuple[Column, bool]]:
    """What of a value goes into a hash, each with whether it is a flag."""
    yield value.isNull(), True
    if isinstance(kind, UserDefinedType):
        value, kind = F.unwrap_udt(value), kind.sqlType()
    if isinstance(kind, StructType):
        for field, inner in zip(kind.fields, fields_of(value, kind), strict=True):
            yield from _row_hash_pieces(seed, inner, field.dataType)
    elif isinstance(kind, ArrayType):
        element = kind.elementType
        yield F.size(value), False
        yield F.transform(value, lambda each: _hash(seed, [(each, element)])), False
    elif isinstance(kind, MapType):
        entry: list[DataType] = [kind.keyType, kind.valueType]
        yield F.size(value), False
        hashed = F.transform(
            F.map_entries(value),
            lambda each: _hash(seed, list(zip((each["key"], each["value"]), entry, strict=True))),
        )
        yield F.sort_array(hashed), False
    elif isinstance(kind, (DoubleType, FloatType)):
        # The text is made for zeros alone.
        yield (value == F.lit(0.0)) & (value.cast("string") == F.lit("-0.0")), True
        yield value, False
    elif isinstance(kind, _VARIANT):
        yield F.to_json(value), False
    elif isinstance(kind, _TEXTS):
        yield value.cast("binary"), False
    elif isinstance(kind, _PLAIN):
        yield value, False
    elif not isinstance(kind, NullType):
        raise FormatError(
            f"State of the type {kind.simpleString()} cannot be compared: the type is not supported.",
            code="unknown-type",
            hint="Report it, with the Spark version.",
        )
