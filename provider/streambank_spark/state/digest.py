"""A fingerprint of the state of each operator: the same for the same rows, wherever and however they lie.

Rows are hashed one by one and the hashes are added up, so neither the order of rows plays a part, nor the
partition that a row is in, how many partitions there are, or the files that hold them. Two states with the
same digest hold the same rows, but for one chance in 2**128; nobody is kept from making others on purpose.
Sums of hashes can be added and taken away: the digest of what is kept and that of what went make the whole's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streambank.core.shape import JsonObject
from streambank_spark.state.key_unit import UNIT, partition_of
from streambank_spark.state.read import RowChoice, chosen_parts
from streambank_spark.state.row_hash import hashes, row_hash
from streambank_spark.state.state import PARTITION, QueryState, StatePart, elements
from streambank_spark.state.store_rows import GONE, StoreRows

_PIECE_BITS = 22
_PIECES = 3
_MODULUS = 1 << 64
_HASHES = ("_first", "_second")


@dataclass(frozen=True, slots=True)
class StoreDigest(JsonObject):
    """The fingerprint of one part of an operator's state.

    Attributes:
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

    Raises:
        InputError: There is no such operator or part.
        FormatError: State of a type that is not known (code `unknown-type`).
    """
    return [_digest(state, each) for each in chosen_parts(state, RowChoice(operator, part))]


def _digest(state: QueryState, part: StatePart) -> StoreDigest:
    frame = state.whole(part)
    rows, digest = digest_frame(frame, elements(frame))
    return StoreDigest(part.operator, part.name, rows, digest)


def digest_frame(frame: DataFrame, rows: Column | None = None) -> tuple[int, str]:
    """How many rows a frame has, each for `rows` of them, and their fingerprint, without `partition_id`."""
    each = F.lit(1) if rows is None else rows
    found = frame.select(*hash_columns(frame), each.alias("rows")).agg(F.sum("rows"), *sums()).collect()[0]
    return int(found[0] or 0), digest_from(found[1:])


def hash_columns(frame: DataFrame) -> list[Column]:
    """The hashes of a frame's rows, as the columns that `sums` adds up."""
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


_PLACE = "_place"
_PLACES = ("_first_place", "_second_place")

Elsewhere = tuple[int, str]
"""How many rows lie elsewhere than the hash of their key says, and the fingerprint of their keys and
partitions: of a loose distribution any row may."""
_OF_VALUES = ("value", "value_bytes", PARTITION)


@dataclass(frozen=True, slots=True)
class Counted:
    """What was read of one store: rows that stay, some of them `elsewhere` than their key's hash says."""

    rows_before: int
    rows: int
    digest: str
    elsewhere: Elsewhere


def count_kept(store: StoreRows, units: DataFrame | None) -> Counted:
    """What there is, and what of it has to stay when some units go, by one read.

    It is a separate read, and not what the writing reads: a row that was lost there would be missing here.
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
