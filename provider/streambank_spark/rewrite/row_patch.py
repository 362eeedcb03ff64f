"""Rows of state that get other values while the state is written anew, and the proof that no others did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streambank.core.errors import IntegrityError, RefusedError
from streambank_spark.state.digest import digest_frame
from streambank_spark.state.state import Part, QueryState

_HALF = 16
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Mended:
    """What becomes of the broken rows of one part.

    Attributes:
        part: The part.
        store: The store that it lies in.
        family: The column family of that store.
        rows: How many rows are broken.
        frame: The part's rows as they are.
        holds: Whether a row keeps the rules.
        new: The value that a broken row gets.
        changes: Of each broken row `partition`, and the bytes `key_was`, `value_was`, `value_new`.
    """

    part: Part
    store: str
    family: str
    rows: int
    frame: DataFrame
    holds: Column
    new: Column
    changes: DataFrame | None = None

    @property
    def place(self) -> str:
        """What messages call it."""
        return f"operator {self.part.operator}, {self.part.name}"

    @property
    def named(self) -> tuple[int, str]:
        """Operator and store."""
        return self.part.operator, self.store

    @property
    def repaired(self) -> DataFrame:
        """The broken rows with their new values."""
        return self.frame.where(~self.holds).withColumn("value", self.new)

    @property
    def bytes_of(self) -> DataFrame:
        """The changes, which have to be there."""
        assert self.changes is not None
        return self.changes

    def with_changes(self, changes: DataFrame) -> Mended:
        """The same with the bytes."""
        return replace(self, changes=changes)

    def in_rows(self, frame: DataFrame) -> DataFrame:
        """The rows of its store with the new values, as the state reader gives them."""
        return frame.withColumn("value", F.when(self.holds, F.col("value")).otherwise(self.new))

    def in_raw(self, frame: DataFrame) -> DataFrame:
        """The raw rows of its store with the new values, in the order and partitions that they are in."""
        joined = frame.join(F.broadcast(self.bytes_of.drop("partition")), self._same(), "left")
        new = F.coalesce("value_new", "value_bytes").alias("value_bytes")
        return joined.select(*(new if name == "value_bytes" else F.col(name) for name in frame.columns))

    def found_raw(self, frame: DataFrame) -> int:
        """How many raw rows of its store have the very bytes that are to be replaced."""
        return frame.join(F.broadcast(self.bytes_of), self._same(), "left_semi").count()

    def _same(self) -> Column:
        return (
            (F.col("key_bytes") == F.col("key_was"))
            & (F.col("value_bytes") == F.col("value_was"))
            & (F.col("column_family_name") == self.family)
        )

    def verify(self, written: QueryState) -> Proof:
        """Make sure that what was written has the repaired rows, and every other row as it was.

        Raises:
            IntegrityError: It has not (code `rewrite-differs`).
        """
        after = written.frame(self.part)
        (rest_rows, rest), (_, repaired) = (
            digest_frame(self.frame.where(self.holds)),
            digest_frame(self.repaired),
        )
        rows, found = digest_frame(after)
        if (rows, found) != (rest_rows + self.rows, _sum((rest, repaired))):
            raise _differs(f"the {rows:,} rows of {self.place} ({found}) are not the expected ones")
        broken = after.where(~self.holds).count()
        if broken:
            raise _differs(f"{broken:,} rows of {self.place} break a rule")
        return Proof(rest_rows, rest)


@dataclass(frozen=True, slots=True)
class Proof:
    """What was seen of a part after its repair.

    Attributes:
        rows: How many rows were to stay as they were.
        digest: The fingerprint of these, before and after.
    """

    rows: int
    digest: str


def _sum(digests: Iterable[str]) -> str:
    """The fingerprint of rows together, from the fingerprints of some and of the others (digest.py)."""
    halves = [(int(each[:_HALF], 16), int(each[_HALF:], 16)) for each in digests]
    return "".join(f"{sum(some) % _MODULUS:016x}" for some in zip(*halves, strict=True))


def not_encoded(place: str, why: str) -> RefusedError:
    """The refusal of state whose bytes are not those that would be written."""
    return RefusedError(
        f"Rows of {place} cannot be repaired: {why}.",
        code="repair-encoding",
        hint="Only rows that are stored as plain UnsafeRow can be repaired. Remove the keys instead: "
        "`streambank state compact --where`.",
    )


def _differs(what: str) -> IntegrityError:
    return IntegrityError(
        f"The repaired state is wrong: {what}.",
        code="rewrite-differs",
        hint="Nothing was saved. The query and its savepoint are unchanged. Report this, with the Spark "
        "version.",
    )
