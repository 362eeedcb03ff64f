"""Writing HDFS-backed state stores anew, which Spark's own rewriter refuses: as files, one task a partition.

What goes is told by the bytes of its keys: Spark's state reader gives the keys, and unsafe_row.py makes of
them the bytes that are in the files. Everything else is carried over byte for byte, the newest value of each
key into one snapshot, so that the next start has no deltas to replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.index import store_folder
from streambank.errors import RefusedError
from streambank.storage import open_store
from streambank_spark.hdfs_rows import check_codec, load_rows, snapshot
from streambank_spark.state import PARTITION, QueryState
from streambank_spark.unsafe_row import encoder, plain

ROW_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_HOLDS = (Kind.SNAPSHOT, Kind.DELTA)

GoneRows = Callable[[int, str], DataFrame | None]
"""Operator and store -> the rows of it that go, as the state reader gives them; None where none do."""


@dataclass(frozen=True, slots=True)
class _Store:
    """One store: what a task has to know.

    Attributes:
        source: URI of the checkpoint that is read.
        target: URI of the one that is written.
        codec: How state files are compressed.
        chains: Partition -> its files, in the order in which they are read.
        names: Partition -> the snapshot to write.
    """

    source: str
    target: str
    codec: str
    chains: Mapping[int, tuple[str, ...]]
    names: Mapping[int, str]

    def work(self, pairs: Iterator[tuple[int, bytes | None]]) -> Iterator[tuple[int, int]]:
        """Write the partitions that the pairs name; gives how many keys of each were there to go."""
        gone: dict[int, set[bytes]] = {}
        for partition, key in pairs:
            keys = gone.setdefault(partition, set())
            if key is not None:
                keys.add(key)
        read, target = open_store(self.source).read, open_store(self.target)
        for partition, keys in gone.items():
            rows = load_rows(read, self.chains[partition], self.codec)
            found = sum(rows.pop(key, None) is not None for key in keys)
            target.write(self.names[partition], snapshot(rows, self.codec))
            yield partition, found


def rewrite_hdfs_stores(state: QueryState, target: str, gone: GoneRows) -> None:
    """Write every store of every operator anew.

    Args:
        state: What is read.
        target: URI of the checkpoint that is written, with everything but its state in place.
        gone: What goes.

    Raises:
        RefusedError: The files cannot be rewritten (codes `unknown-codec`, `row-checksum`).
        FormatError: A file is damaged.
        PySparkException: Spark failed.
    """
    closure = state.closure
    codec = check_codec(closure.spark.codec)
    if closure.offset_conf.get(ROW_CHECKSUM, "false").lower() == "true":
        raise RefusedError(
            "HDFS-backed state with checksums of its rows cannot be rewritten.",
            code="row-checksum",
            hint=f"{ROW_CHECKSUM} is fixed by the first batch: begin the job anew, or with RocksDB.",
        )
    for operator in closure.operators:
        for store in operator.stores:
            chains = state_files(closure, operator.operator, store.store)
            name = f"{closure.batch + 1}.snapshot"
            names = {
                partition: f"{store_folder(operator.operator, partition, store.store)}/{name}"
                for partition in range(store.partitions)
            }
            work = _Store(state.location, target, codec, chains, names)
            _run(state, work, gone(operator.operator, store.store))


def state_files(closure: Closure, operator: int, store: str) -> dict[int, tuple[str, ...]]:
    """The files of each partition of a store, in the order in which they are read."""
    found: dict[int, list[tuple[int, str]]] = {}
    for path in closure.paths:
        part = classify(path)
        if part.kind in _HOLDS and (part.operator, part.store) == (operator, store):
            assert part.partition is not None and part.version is not None
            found.setdefault(part.partition, []).append((part.version, path))
    return {partition: tuple(path for _, path in sorted(files)) for partition, files in found.items()}


def _run(state: QueryState, work: _Store, gone: DataFrame | None) -> None:
    """One task a partition, each with the keys that go from it."""
    count = len(work.names)
    context = state.session.sparkContext
    pairs: Any = context.parallelize([(partition, None) for partition in work.names], count)
    if gone is not None:
        pairs = pairs.union(_keys(gone))
    placed = pairs.partitionBy(count, _itself)
    placed.mapPartitions(work.work).collect()


def _itself(partition: int) -> int:
    return partition


def _keys(gone: DataFrame) -> Any:
    """Partition and bytes of each key."""
    kind = gone.schema["key"].dataType
    assert isinstance(kind, StructType)
    rows = gone.select(PARTITION, plain(F.col("key"), kind).alias("key")).rdd
    return rows.mapPartitions(partial(_encoded, kind))


def _encoded(kind: StructType, rows: Iterator[Any]) -> Iterator[tuple[int, bytes]]:
    encode = encoder(kind)
    for row in rows:
        yield row[0], encode(row[1])
