"""Rows of state that get other values or are added while state is rewritten, and the proof of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructType

from streambank.core.errors import RefusedError
from streambank_spark.rewrite.check import differs
from streambank_spark.rewrite.rewrite_request import OVERWRITE, REPLACE
from streambank_spark.rewrite.validate_request import VALUE
from streambank_spark.state.digest import digest_frame
from streambank_spark.state.read import KEY, apart
from streambank_spark.state.state import PARTITION, QueryState, StatePart

MOST_BROADCAST = 100_000
"""How many changed rows each task gets as a whole; of more, rows are brought together by their keys."""
_PLACE = "_place"
_HALF = 16
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class _PartRows:
    """So many rows of one part that are written, and the column family of their store."""

    part: StatePart
    store: str
    family: str
    partitions: int
    rows: int

    @property
    def place(self) -> str:
        """What messages call it."""
        return f"operator {self.part.operator}, {self.part.name}"

    @property
    def named(self) -> tuple[int, str]:
        return self.part.operator, self.store


@dataclass(frozen=True, slots=True)
class ChangedRows(_PartRows):
    """Rows of one part that get other values; their keys stay.

    Attributes:
        frame: All rows of the part, before the change.
        holds: Whether a row stays as it is: in a repair, because it keeps the rules.
        changes: Of each changed row `partition`, and the bytes `key_was`, `value_was`, `value_new`.
        must_hold: Whether `holds` must be true of every row after the change, as in a repair.
    """

    frame: DataFrame
    holds: Column
    new: Column
    changes: DataFrame | None = None
    must_hold: bool = True

    @property
    def changed(self) -> DataFrame:
        return self.frame.where(~self.holds).withColumn("value", self.new)

    @property
    def bytes_of(self) -> DataFrame:
        """`changes`, which must be set."""
        assert self.changes is not None
        return self.changes

    def with_changes(self, changes: DataFrame) -> ChangedRows:
        return replace(self, changes=changes)

    def in_rows(self, frame: DataFrame) -> DataFrame:
        """The rows of its store with the new values, as the state reader gives them."""
        return apart(frame).withColumn("value", F.when(self.holds, F.col("value")).otherwise(self.new))

    def in_raw(self, frame: DataFrame) -> DataFrame:
        """The raw rows of its store with the new values, each in its partition."""
        new = F.coalesce("value_new", "value_bytes").alias("value_bytes")
        columns = [new if name == "value_bytes" else F.col(name) for name in frame.columns]
        changes = self.bytes_of.drop("partition")
        if self.rows <= MOST_BROADCAST:
            return frame.join(F.broadcast(changes), self._same(), "left").select(*columns)
        mine, placed = _of_family(self.family), _placed(frame)
        changed = placed.where(mine).join(changes, self._same(), "left").select(*columns, _PLACE)
        # Elements of a list, which are of another family, stay in their order.
        return _in_place(placed.where(~mine).unionAll(changed), self.partitions)

    def found_raw(self, frame: DataFrame) -> int:
        """How many raw rows of its store have exactly the bytes that the change replaces."""
        named = self.bytes_of if self.rows > MOST_BROADCAST else F.broadcast(self.bytes_of)
        return frame.join(named, self._same(), "left_semi").count()

    def _same(self) -> Column:
        return (
            (F.col("key_bytes") == F.col("key_was"))
            & (F.col("value_bytes") == F.col("value_was"))
            & _of_family(self.family)
        )

    def verify(self, written: QueryState) -> None:
        """Make sure that what was written has the changed rows, and every other row as it was.

        Raises:
            IntegrityError: It does not (code `rewrite-differs`).
        """
        after = apart(written.frame(self.part))
        (rest_rows, rest), (_, changed) = (
            digest_frame(self.frame.where(self.holds)),
            digest_frame(self.changed),
        )
        rows, found = digest_frame(after)
        if (rows, found) != (rest_rows + self.rows, _sum((rest, changed))):
            what = f"the {rows:,} rows of {self.place} ({found}) are not the expected ones"
            raise differs(what, "changed state")
        broken = after.where(~self.holds).count() if self.must_hold else 0
        if broken:
            raise differs(f"{broken:,} rows of {self.place} break a rule", "changed state")


@dataclass(frozen=True, slots=True)
class NewRows(_PartRows):
    """Rows that a part gets from a table.

    Attributes:
        existing: All rows of the part, before.
        mapped: `key`, `value` and `partition_id` of each row that the table gives; Spark computes them again
            at each read.
        existing_rows: `REPLACE`, `KEEP` or `OVERWRITE`.
        bytes_of: Of each row that is written its `partition`, its `key`, and the bytes of key and value.
    """

    existing: DataFrame
    mapped: DataFrame
    existing_rows: str
    bytes_of: DataFrame

    def in_rows(self, frame: DataFrame) -> DataFrame:
        """The rows of its store with those that are written, as the state reader gives them."""
        kept = apart(frame).select(KEY, VALUE, PARTITION)
        new = self.mapped
        if self.existing_rows == REPLACE:
            kept = kept.where(F.lit(False))
        elif self.existing_rows == OVERWRITE:
            kept = without_keys(kept, new)
        else:
            new = without_keys(new, kept)
        return kept.unionAll(new)

    def in_raw(self, frame: DataFrame) -> DataFrame:
        """The raw rows of its store with those that are written, each in its partition."""
        mine, placed = _of_family(self.family), _placed(frame)
        kept = placed
        if self.existing_rows == REPLACE:
            kept = placed.where(~mine)
        elif self.existing_rows == OVERWRITE:
            named = self.bytes_of.select(F.col("key_bytes").alias("_key_bytes"))
            others = placed.where(mine).join(named, F.col("key_bytes") == F.col("_key_bytes"), "left_anti")
            kept = placed.where(~mine).unionAll(others)
        kind = _partition_key(frame)
        nothing = F.struct(*(F.lit(None).alias(name) for name in kind.names))
        alone = all(isinstance(one.dataType, NullType) for one in kind.fields)
        columns = {
            "partition_key": (nothing if alone else F.col(KEY)).cast(kind),
            "key_bytes": F.col("key_bytes"),
            "value_bytes": F.col("value_bytes"),
            "column_family_name": F.lit(self.family),
            _PLACE: F.col("partition"),
        }
        new = self.bytes_of.select(*(columns[name].alias(name) for name in placed.columns))
        return _in_place(kept.unionAll(new), self.partitions)

    def verify(self, written: QueryState) -> None:
        """Make sure that what was written is what there was and the table, read once more, come to.

        Raises:
            IntegrityError: It is not (code `rewrite-differs`).
        """
        expected = digest_frame(self.in_rows(self.existing))
        found = digest_frame(written.frame(self.part))
        if found != expected:
            raise differs(
                f"{self.place} has {found[0]:,} rows ({found[1]}) instead of {expected[0]:,} ({expected[1]})",
                "changed state",
            )


def _of_family(family: str) -> Column:
    return F.col("column_family_name") == family


def _partition_key(frame: DataFrame) -> StructType:
    kind = frame.schema["partition_key"].dataType
    assert isinstance(kind, StructType)
    return kind


def _placed(frame: DataFrame) -> DataFrame:
    """Raw rows with the partition that each lies in; a plan that reads them has a task for each partition."""
    return frame.withColumn(_PLACE, F.spark_partition_id())


def _in_place(frame: DataFrame, partitions: int) -> DataFrame:
    return frame.repartitionById(partitions, _PLACE).drop(_PLACE)


Patch = ChangedRows | NewRows
"""What a rewrite changes in one part."""


def without_keys(frame: DataFrame, named: DataFrame) -> DataFrame:
    """The rows of all keys but those of other rows."""
    return frame.join(
        named.select(F.col(KEY).alias("_key")), F.col(KEY).eqNullSafe(F.col("_key")), "left_anti"
    )


def _sum(digests: Iterable[str]) -> str:
    """The fingerprint of rows together, from the fingerprints of some and of the others (digest.py)."""
    halves = [(int(each[:_HALF], 16), int(each[_HALF:], 16)) for each in digests]
    return "".join(f"{sum(some) % _MODULUS:016x}" for some in zip(*halves, strict=True))


def not_encoded(place: str, why: str) -> RefusedError:
    """The refusal of state whose bytes are not those that would be written."""
    return RefusedError(
        f"Rows of {place} cannot be changed: {why}.",
        code="repair-encoding",
        hint="Only rows that are stored as plain UnsafeRow can be changed. Remove the keys instead: "
        "`streambank state compact --where`.",
    )
