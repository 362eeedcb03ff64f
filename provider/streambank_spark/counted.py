"""Rows of a store counted and fingerprinted while they are read for something else, or in one read of them.

A rewrite has to know how many rows there were, and which ones had to stay. Both are told by the rows that it
reads anyhow: they are marked and counted before anything is done to them (`watched`), and what Spark found
is asked of the plan that it ran (`counted_by`). A stage that is run again may have counted some rows twice;
so what does not fit is counted once more, by a read of its own, before it is called wrong (rewrite_check.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streambank_spark.digest import digest_from, hash_columns, sums
from streambank_spark.state import PARTITION
from streambank_spark.store_rows import GONE, StoreRows
from streambank_spark.unit import UNIT, partition_of

_NAME = "streambank"
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


def watched(store: StoreRows, units: DataFrame | None) -> DataFrame:
    """All rows of a store, with `GONE` on those of some units, counted when they are read.

    Args:
        store: The store.
        units: Each once.
    """
    marked = store.marked(units)
    stays = ~F.col(GONE)
    hashed = marked.select("*", *hash_columns(store.frame))
    every = F.count(F.lit(1)).alias("rows_before")
    staying = [F.count_if(stays), *sums(stays)]
    watching = hashed.observe(_NAME, every, *(each.alias(f"_{n}") for n, each in enumerate(staying)))
    return watching.select(*marked.columns)


def counted_by(java_frame: Any) -> Counted | None:
    """What was counted when a frame that was made of `watched` was run; None where nobody watched.

    Args:
        java_frame: The JVM's frame; none that was made of it, which would be another plan.
    """
    found = java_frame.queryExecution().observedMetrics().get(_NAME)
    if not found.isDefined():
        return None
    row = found.get()
    values = [row.get(number) for number in range(row.length())]
    return Counted(values[0], values[1], digest_from(values[2:]))


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
