"""Rows of a store counted and fingerprinted, by one read of them each time."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streambank_spark.state.digest import digest_from, hash_columns, sums
from streambank_spark.state.state import PARTITION
from streambank_spark.state.store_rows import GONE, StoreRows
from streambank_spark.state.unit import UNIT, partition_of

_PLACE = "_place"


@dataclass(frozen=True, slots=True)
class Counted:
    """What was read of one store.

    Attributes:
        rows_before: All rows.
        rows: Those that stay.
        digest: Fingerprint of those that stay.
    """

    rows_before: int
    rows: int
    digest: str


def count_kept(store: StoreRows, units: DataFrame | None) -> Counted:
    """What there is, and what of it has to stay when some units go, by one read.

    It is a read of its own, and not what the writing reads: a row that was lost there would be missing here.

    Args:
        store: The store.
        units: Those that go, each once.
    """
    stays = ~F.col(GONE)
    hashed = store.marked(units).select(GONE, *hash_columns(store.frame))
    found = hashed.agg(F.count(F.lit(1)), F.count_if(stays), *sums(stays)).collect()[0]
    return Counted(found[0], found[1], digest_from(found[2:]))


def count_all(store: StoreRows) -> tuple[int, str, int]:
    """Rows, fingerprint, and how many rows Spark would look for in another partition, by one read."""
    unit = store.unit()
    place = F.spark_partition_id() if store.raw else F.col(PARTITION)
    hashes = hash_columns(store.frame)
    placed = store.frame.select("*", place.alias(_PLACE), *([] if unit is None else [unit.alias(UNIT)]))
    expected = F.lit(0) if unit is None else partition_of(placed, store.partitions)
    hashed = placed.select(*hashes, (expected != F.col(_PLACE)).alias("odd"))
    found = hashed.agg(F.count(F.lit(1)), F.count_if("odd"), *sums()).collect()[0]
    return found[0], digest_from(found[2:]), found[1]


def count_going(store: StoreRows, units: DataFrame) -> tuple[int, int]:
    """All rows of a store, and those of some units, by one read."""
    found = store.marked(units).agg(F.count(F.lit(1)), F.count_if(F.col(GONE))).collect()[0]
    return found[0], found[1]
