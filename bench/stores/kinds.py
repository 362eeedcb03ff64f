"""The state stores that are measured, and their settings."""

from __future__ import annotations

from dataclasses import dataclass

STATE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
DELTAS = 5
"""`minDeltasForSnapshot`: a measurement has not the time for the 10 of Spark's default."""
USUAL_DELTAS = 10
_PROVIDER = {f"{STATE}providerClass": ROCKSDB}
_CHANGELOG = {**_PROVIDER, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"}


@dataclass(frozen=True, slots=True)
class Kind:
    """One state store.

    Attributes:
        name: Its name in measurements and advice.
        title: What a page calls it.
        conf: The settings that choose it; all others are Spark's defaults.
    """

    name: str
    title: str
    conf: dict[str, str]


KINDS = {
    one.name: one
    for one in (
        Kind("hdfs", "HDFS-backed", {}),
        Kind("rocksdb", "RocksDB", _PROVIDER),
        Kind("rocksdb-changelog", "RocksDB with changelog", _CHANGELOG),
        Kind(
            "rocksdb-v2",
            "RocksDB with changelog, format v2",
            {**_CHANGELOG, f"{STATE}checkpointFormatVersion": "2"},
        ),
    )
}
