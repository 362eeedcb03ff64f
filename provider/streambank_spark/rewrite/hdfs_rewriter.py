"""Rewrites HDFS-backed state stores, which Spark's own rewriter refuses: as files, one task a partition.

Rows that go are found by the bytes of their keys: Spark's state reader gives the keys, and unsafe_row.py
makes of them the bytes that are in the files. Everything else is carried over byte for byte, the newest value
of each key into one snapshot, so that the next start has no deltas to replay. A partition is in the memory of
its task as a whole, as it is in that of the query. The tasks are Python, which comes along
(submit/executor_packages.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.index import store_folder
from streambank.checkpoint.rewritable import check_codec
from streambank.storage import open_store
from streambank_spark.rewrite.hdfs_files import DEFAULT_CODEC, load_rows, snapshot
from streambank_spark.rewrite.rewrite_request import REPLACE
from streambank_spark.rewrite.row_patch import NewRows, Patch, not_encoded
from streambank_spark.rewrite.unsafe_row import encoder, plain
from streambank_spark.state.state import PARTITION, QueryState
from streambank_spark.submit.executor_packages import ship, use_packages

_HOLDS = (Kind.SNAPSHOT, Kind.DELTA)
PACKAGES = ("lz4", "xxhash", "zstandard", "boto3")
"""What the tasks may import: codecs, and what opens s3://."""

GoneRows = Callable[[int, str], DataFrame | None]
"""Operator and store -> the rows of it that go, as the state reader gives them; None where none do."""
_Change = tuple[bytes, bytes | None, bytes | None]
"""The bytes of a key, of its value (None for any), and of its new value; without that, the row goes."""


@dataclass(frozen=True, slots=True)
class _Store:
    """One store: what a task has to know.

    Attributes:
        chains: Partition -> its files, in the order in which they are read.
        names: Partition -> the snapshot to write.
        empty: Whether none of the rows that are there stay.
    """

    source: str
    target: str
    codec: str
    chains: Mapping[int, tuple[str, ...]]
    names: Mapping[int, str]
    empty: bool = False

    def work(self, pairs: Iterator[tuple[int, _Change | None]]) -> Iterator[tuple[int, int]]:
        """Write the partitions that the pairs name; gives how many values of each could be put there."""
        use_packages()
        changes: dict[int, list[_Change]] = {}
        for partition, change in pairs:
            asked = changes.setdefault(partition, [])
            if change is not None:
                asked.append(change)
        read, target = open_store(self.source).read, open_store(self.target)
        for partition, asked in changes.items():
            rows = {} if self.empty else load_rows(read, self.chains[partition], self.codec)
            found = sum(_made(rows, change) for change in asked)
            target.write(self.names[partition], snapshot(rows, self.codec))
            yield partition, found


def _made(rows: dict[bytes, bytes], change: _Change) -> bool:
    """Make one change: let a row go, or put a value in the place of the old one; whether a value was put."""
    key, was, new = change
    if new is None:
        rows.pop(key, None)
        return False
    if was is not None and rows.get(key) != was:
        return False
    rows[key] = new
    return True


def rewrite_hdfs_stores(
    state: QueryState,
    target: str,
    gone: GoneRows,
    patched: Mapping[tuple[int, str], Sequence[Patch]] = MappingProxyType({}),
) -> None:
    """Rewrite every store of every operator.

    Args:
        target: URI of the checkpoint that is written, with everything but its state in place.
        gone: What goes; read once.

    Raises:
        RefusedError: The files cannot be rewritten (codes `unknown-codec`, `row-checksum`), or hold other
            bytes than a change replaces (`repair-encoding`).
        FormatError: A file is damaged.
    """
    closure = state.closure
    check_codec(closure, elsewhere=True)  # the tasks say themselves which package they lack
    codec = closure.spark.codec or DEFAULT_CODEC
    ship(state.session.sparkContext, PACKAGES)
    for operator in closure.operators:
        for store in operator.stores:
            chains = state_files(closure, operator.operator, store.store)
            name = f"{closure.batch + 1}.snapshot"
            names = {
                partition: f"{store_folder(operator.operator, partition, store.store)}/{name}"
                for partition in range(store.partitions)
            }
            patches = patched.get((operator.operator, store.store), ())
            empty = any(isinstance(one, NewRows) and one.existing_rows == REPLACE for one in patches)
            work = _Store(state.location, target, codec, chains, names, empty)
            going = gone(operator.operator, store.store)
            changes = [_changes_of(one) for one in patches]
            if going is not None:
                kind = going.schema["key"].dataType
                assert isinstance(kind, StructType)
                keys: Any = going.select(PARTITION, plain(F.col("key"), kind).alias("key"))
                changes.append(keys.rdd.mapPartitions(partial(_encoded, kind)))
            lacking = sum(one.rows for one in patches) - _run(state, work, changes)
            if lacking:
                raise not_encoded(patches[0].place, f"{lacking:,} of them are stored in another format")


def state_files(closure: Closure, operator: int, store: str) -> dict[int, tuple[str, ...]]:
    """The files of each partition of a store, in the order in which they are read."""
    found: dict[int, list[tuple[int, str]]] = {}
    for path in closure.paths:
        part = classify(path)
        if part.kind in _HOLDS and (part.operator, part.store) == (operator, store):
            assert part.partition is not None and part.version is not None
            found.setdefault(part.partition, []).append((part.version, path))
    return {partition: tuple(path for _, path in sorted(files)) for partition, files in found.items()}


def _run(state: QueryState, work: _Store, changes: Sequence[Any]) -> int:
    """One task a partition, each with the changes to it, from RDDs; how many values could be put there."""
    count = len(work.names)
    context = state.session.sparkContext
    pairs: Any = context.parallelize([(partition, None) for partition in work.names], count)
    for each in changes:
        pairs = pairs.union(each)
    placed = pairs.partitionBy(count, _itself)
    return sum(made for _, made in placed.mapPartitions(work.work).collect())


def _itself(partition: int) -> int:
    return partition


def _changes_of(patch: Patch) -> Any:
    if isinstance(patch, NewRows):
        return patch.bytes_of.select("partition", "key_bytes", "value_bytes").rdd.map(_added)
    return patch.bytes_of.rdd.map(_replaced)


def _added(row: Any) -> tuple[int, _Change]:
    return row[0], (bytes(row[1]), None, bytes(row[2]))


def _replaced(row: Any) -> tuple[int, _Change]:
    return row[0], (bytes(row[1]), bytes(row[2]), bytes(row[3]))


def _encoded(kind: StructType, rows: Iterator[Any]) -> Iterator[tuple[int, _Change]]:
    encode = encoder(kind)
    for row in rows:
        yield row[0], (encode(row[1]), None, None)
