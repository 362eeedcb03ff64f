"""Settings of the checkpoint, and how often there is one: arms of a plain aggregation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bench.choices.trial import STATE, Arm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HDFS_BACKED = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
CHANGELOG = {f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"}


@dataclass(frozen=True, slots=True)
class Place:
    """Somewhere else than on the local disk.

    Attributes:
        name: What the page calls it.
        location: A directory that is not there yet, as Spark spells it.
        room: Bytes and files below a location there; nothing is known of them without it.
    """

    name: str
    location: str
    room: Callable[[str], tuple[int, int]] | None = None


def totals(frame: DataFrame) -> DataFrame:
    """The state: a count, a sum and the newest time of each key."""
    from pyspark.sql import functions as F

    return frame.groupBy("key").agg(F.count("*"), F.sum("n"), F.max("at"))


def checkpoints(places: Sequence[Place] = ()) -> list[Arm]:
    """The same query with other settings; the first is what the others are compared with.

    Args:
        places: Where two arms more keep their checkpoints, each.
    """
    retain = {"spark.sql.streaming.minBatchesToRetain": "2"}
    arms = [
        Arm("RocksDB, Spark's defaults", totals),
        Arm("changelog", totals, CHANGELOG),
        Arm("changelog, a batch of 4 files", totals, CHANGELOG, files=4),
        Arm("a batch of 4 files", totals, files=4),
        Arm("`minBatchesToRetain` 2", totals, retain),
        Arm("changelog, `minBatchesToRetain` 2", totals, {**CHANGELOG, **retain}),
        Arm("changelog, zstd for logs", totals, {**CHANGELOG, f"{STATE}compression.codec": "zstd"}),
        Arm("SST files without compression", totals, {f"{STATE}rocksdb.compression": "none"}),
        Arm("SST files by zstd", totals, {f"{STATE}rocksdb.compression": "zstd"}),
        Arm("HDFS-backed", totals, {f"{STATE}providerClass": HDFS_BACKED}),
    ]
    for one in places:
        plain = Arm(f"on {one.name}", totals, place=f"{one.location}/plain", room=one.room)
        arms += [
            plain,
            replace(
                plain, name=f"{plain.name}, changelog", conf=CHANGELOG, place=f"{one.location}/changelog"
            ),
        ]
    return arms
