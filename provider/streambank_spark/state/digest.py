"""A fingerprint of the state of each operator: the same for the same rows, wherever and however they lie.

Rows are hashed one by one and the hashes are added up, so neither the order of rows plays a part, nor the
partition that a row is in, how many partitions there are, or the files that hold them. Two states with the
same digest hold the same rows, but for one chance in 2**128; nobody is kept from making others on purpose.
Sums of hashes can be added and taken away: the digest of what is kept and that of what went make the whole's.

Two 64-bit hashes of the content of a row, by which rows are told apart without looking at them.

Spark's `xxhash64` alone is not enough. It passes over nulls, so that (null, 1) and (1, null) are the same to
it; it does not see where one array ends and the next begins; it takes no maps; it goes by what a collation
calls equal and not by the text; and it takes -0.0 for 0.0. So nulls, lengths and negative zeros are hashed
beside the values, texts by their bytes, and maps by their entries in whatever order. It all stays inside
Spark's generated code, at a small share of what reading the state costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
from streambank.core.shape import JsonObject
from streambank_spark.state.hot_keys import UNIT, partition_of
from streambank_spark.state.read import Choice, chosen_parts, column, fields_of
from streambank_spark.state.state import PARTITION, Part, QueryState, elements
from streambank_spark.state.store_rows import GONE, StoreRows

_PIECE_BITS = 22
_PIECES = 3
_MODULUS = 1 << 64
_HASHES = ("_first", "_second")


@dataclass(frozen=True, slots=True)
class StoreDigest(JsonObject):
    """The fingerprint of one part of an operator's state.

    Attributes:
        operator: The stateful operator's id.
        store: The part's name: `left` or `right` of a join, a state variable, `timers`, or else the store.
        rows: Its rows; of a list or a map, the elements.
        digest: 32 hexadecimal digits.
    """

    operator: int
    store: str
    rows: int
    digest: str


def digest_of(state: QueryState, operator: int | None = None, part: str | None = None) -> list[StoreDigest]:
    """The fingerprints of all parts of the state, operators by id, parts in the order of `QueryState.parts`.

    Args:
        state: The state after one batch.
        operator: Only this stateful operator.
        part: Only the parts of this name.

    Raises:
        InputError: There is no such operator or part.
        FormatError: State of a type that is not known (code `unknown-type`).
    """
    return [_digest(state, each) for each in chosen_parts(state, Choice(operator, part))]


def _digest(state: QueryState, part: Part) -> StoreDigest:
    frame = state.whole(part)
    rows, digest = digest_frame(frame, elements(frame))
    return StoreDigest(part.operator, part.name, rows, digest)


def digest_frame(frame: DataFrame, rows: Column | None = None) -> tuple[int, str]:
    """How many rows a frame has, and the fingerprint of them; the column `partition_id` plays no part.

    Args:
        rows: How many rows a row counts for; one where nothing is said.

    Raises:
        FormatError: As `row_hash`.
    """
    each = F.lit(1) if rows is None else rows
    found = frame.select(*hash_columns(frame), each.alias("rows")).agg(F.sum("rows"), *sums()).collect()[0]
    return int(found[0] or 0), digest_from(found[1:])


def hash_columns(frame: DataFrame) -> list[Column]:
    """The hashes of a frame's rows, as the columns that `sums` adds up.

    Raises:
        FormatError: As `row_hash`.
    """
    return [each.alias(name) for each, name in zip(row_hash(frame), _HASHES, strict=True)]


def sums(only: Column | None = None, names: Sequence[str] = _HASHES) -> list[Column]:
    """The sums that make a fingerprint, over `hash_columns`; of the rows alone for which a flag is true."""
    # In pieces that no number of rows makes overflow, and not as a decimal, which takes much longer.
    pieces = [piece for name in names for piece in _pieces(F.col(name))]
    return [F.sum(piece if only is None else F.when(only, piece)) for piece in pieces]


def digest_from(summed: Sequence[int | None]) -> str:
    """The fingerprint that `sums` came to."""
    halves = (_whole(summed[:_PIECES]), _whole(summed[_PIECES:]))
    return "".join(f"{half:016x}" for half in halves)


def _pieces(column: Column) -> list[Column]:
    mask = F.lit((1 << _PIECE_BITS) - 1).cast("long")
    shifts = range(0, _PIECES * _PIECE_BITS, _PIECE_BITS)
    return [F.shiftrightunsigned(column, shift).bitwiseAND(mask) for shift in shifts]


def _whole(sums: Sequence[int | None]) -> int:
    return sum((each or 0) << (place * _PIECE_BITS) for place, each in enumerate(sums)) % _MODULUS


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
    """Two hashes of some columns of a frame.

    Raises:
        FormatError: As `row_hash`.
    """
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


_PLACE = "_place"
_PLACES = ("_first_place", "_second_place")


Elsewhere = tuple[int, str]
"""How many rows lie elsewhere than the hash of their key says, and the fingerprint of their keys and
partitions: of a loose distribution any row may."""
_OF_VALUES = ("value", "value_bytes", PARTITION)


@dataclass(frozen=True, slots=True)
class Counted:
    """What was read of one store.

    Attributes:
        digest: Fingerprint of those that stay.
        elsewhere: Those of them that lie elsewhere than the hash of their key says.
    """

    rows_before: int
    rows: int
    digest: str
    elsewhere: Elsewhere


def count_kept(store: StoreRows, units: DataFrame | None) -> Counted:
    """What there is, and what of it has to stay when some units go, by one read.

    It is a separate read, and not what the writing reads: a row that was lost there would be missing here.

    Args:
        units: Those that go, each once.
    """
    stays = ~F.col(GONE)
    hashed = _hashed(store, store.marked(units), F.col(GONE))
    odd = stays & F.col("odd")
    found = hashed.agg(
        F.count(F.lit(1)), F.count_if(stays), F.count_if(odd), *sums(stays), *sums(odd, _PLACES)
    ).collect()[0]
    return Counted(found[0], found[1], *_told(found[2:]))


def count_all(store: StoreRows) -> tuple[int, str, Elsewhere]:
    """Rows, fingerprint, and the rows that Spark would look for in another partition, by one read."""
    odd = F.col("odd")
    found = (
        _hashed(store, store.frame)
        .agg(F.count(F.lit(1)), F.count_if(odd), *sums(), *sums(odd, _PLACES))
        .collect()[0]
    )
    return found[0], *_told(found[1:])


def _told(found: Sequence[Any]) -> tuple[str, Elsewhere]:
    odd, pieces = found[0], found[1:]
    half = len(pieces) // 2
    return digest_from(pieces[:half]), (odd, digest_from(pieces[half:]))


def _hashed(store: StoreRows, frame: DataFrame, *more: Column) -> DataFrame:
    """The hashes of rows, whether each is `odd`, and if so the hashes of its key and its partition.

    A row that gets another value is known by its key. A key has all of its rows in one partition, so these
    hashes and those of the rows say together where each row is.
    """
    unit = store.unit()
    place = F.spark_partition_id() if store.raw else F.col(PARTITION)
    placed = frame.select("*", place.alias(_PLACE), *([] if unit is None else [unit.alias(UNIT)]))
    expected = F.lit(0) if unit is None else partition_of(placed, store.partitions)
    odd = expected != F.col(_PLACE)
    known = hashes(placed, [*(name for name in store.frame.columns if name not in _OF_VALUES), _PLACE])
    places = [F.when(odd, each).alias(name) for each, name in zip(known, _PLACES, strict=True)]
    return placed.select(*more, *hash_columns(store.frame), odd.alias("odd"), *places)


def count_going(store: StoreRows, units: DataFrame) -> tuple[int, int]:
    """All rows of a store, and those of some units, by one read."""
    found = store.marked(units).agg(F.count(F.lit(1)), F.count_if(F.col(GONE))).collect()[0]
    return found[0], found[1]
