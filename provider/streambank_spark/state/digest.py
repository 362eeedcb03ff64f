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

from streambank_spark.state.read import Choice, chosen_parts
from streambank_spark.state.row_hash import row_hash
from streambank_spark.state.state import Part, QueryState, elements

_PIECE_BITS = 22
_PIECES = 3
_MODULUS = 1 << 64
_HASHES = ("_first", "_second")


@dataclass(frozen=True, slots=True)
class StoreDigest:
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

    def to_dict(self) -> dict[str, Any]:
        """The digest as JSON."""
        return {"operator": self.operator, "store": self.store, "rows": self.rows, "digest": self.digest}


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
        frame: Rows of state.
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


def sums(only: Column | None = None) -> list[Column]:
    """The sums that make a fingerprint, over `hash_columns`; of the rows alone for which a flag is true."""
    # In pieces that no number of rows makes overflow, and not as a decimal, which takes much longer.
    pieces = [piece for name in _HASHES for piece in _pieces(F.col(name))]
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
