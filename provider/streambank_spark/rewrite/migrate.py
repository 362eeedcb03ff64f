"""HDFS-backed state rewritten as RocksDB, after the same batch: what Spark itself has no way to do.

Both providers keep the same rows, as the same bytes (UnsafeRow); what differs is around them. So rows are
taken out of the HDFS-backed files as bytes and never decoded (hdfs_files.py), and Spark's own `StateRewriter`
writes them (private/state_rewriter.py): prefix keys, version bytes and files are its business. It wants to
read before it writes, and refuses HDFS-backed state there; what it is given to read is the new checkpoint,
which has no state yet, and what it would read is replaced by the rows before anything is read.

The setting of the provider in the offset log is what changes besides; schemas, operator metadata and state
formats stay, since all operators that the HDFS-backed provider can have keep them in one column family.
Verified by reading both with Spark's state reader: the same rows, in the same partitions (check.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streambank.checkpoint.operators import GLOBAL_LIMIT
from streambank.checkpoint.rewritable import check_strict
from streambank.checkpoint.shape import PROVIDER
from streambank.core.errors import InputError, RefusedError
from streambank.storage import Store, open_store
from streambank_spark.private.state_rewriter import quiet_session, rewrite_stores
from streambank_spark.rewrite.check import Compared, compare
from streambank_spark.rewrite.expiry import ExpiredKeys
from streambank_spark.rewrite.hdfs_files import DEFAULT_CODEC, load_rows
from streambank_spark.rewrite.hdfs_rewriter import PACKAGES, state_files
from streambank_spark.rewrite.rewrite import Rewritten, rewrite
from streambank_spark.rewrite.skeleton import lay_skeleton
from streambank_spark.state.key_unit import require_hashable
from streambank_spark.state.read import KEY
from streambank_spark.state.staging import place_beside
from streambank_spark.state.state import QueryState
from streambank_spark.state.store_rows import store_rows
from streambank_spark.submit.executor_packages import ship, use_packages

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_FAMILY = "default"
"""The column family of rows that are in none."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """The raw rows of one store, for a task; `chains`: each partition's files, in the order to read them."""

    source: str
    codec: str
    chains: Mapping[int, tuple[str, ...]]

    def of(self, partition: int) -> Iterator[tuple[None, bytearray, bytearray, str]]:
        """Those of one partition, in the shape that StateRewriter writes; it does not look at the first."""
        use_packages()
        rows = load_rows(open_store(self.source).read, self.chains[partition], self.codec)
        for key, value in rows.items():
            yield None, bytearray(key), bytearray(value), _FAMILY


def migrate(
    spark: SparkSession,
    state: QueryState,
    target: Store,
    *,
    derived_from: str,
    gone: Sequence[ExpiredKeys] = (),
    partitions: int | None = None,
) -> Rewritten:
    """Write HDFS-backed state as RocksDB, verify it, and make the target a checkpoint.

    Args:
        state: What is read; nobody may write there meanwhile.
        partitions: Another number of state partitions: then it is written twice.

    Raises:
        InputError: It is no HDFS-backed state (code `not-hdfs-backed`).
        RefusedError: It cannot be done with this state; the code says why.
        IntegrityError: What was written is not what it has to be (code `rewrite-differs`); there is no
            checkpoint.
        FormatError: Another Spark, or a file that is damaged.
    """
    assert not gone
    check_migratable(state)
    if partitions is None:
        return Rewritten(target.uri, state.closure.batch, _to_rocksdb(spark, state, target, derived_from))
    check_strict(state.store, state.closure)
    with place_beside(target.uri) as between:
        _to_rocksdb(spark, state, between, derived_from)
        migrated = QueryState(spark, between.uri)
        return rewrite(spark, migrated, target, derived_from=derived_from, partitions=partitions)


def _to_rocksdb(
    spark: SparkSession, state: QueryState, target: Store, derived_from: str
) -> tuple[Compared, ...]:
    closure = state.closure
    session = quiet_session(spark, closure.spark.checkpoint_format)
    conf = {PROVIDER: ROCKSDB}
    ship(session.sparkContext, PACKAGES)
    skeleton = lay_skeleton(state.store, target, closure, derived_from=derived_from, conf=conf)

    def rows(operator: int, store: str, frame: DataFrame) -> DataFrame:
        codec = closure.spark.codec or DEFAULT_CODEC
        raw = _Rows(state.location, codec, state_files(closure, operator, store))
        count = len(raw.chains)
        # A task a partition: its place among them says where its rows are written.
        placed: Any = session.sparkContext.parallelize(range(count), count).flatMap(raw.of)
        return session.createDataFrame(placed, frame.schema, verifySchema=False)

    ids = rewrite_stores(session, target.uri, target.uri, closure.batch, rows)
    before = list(store_rows(session, state))
    with skeleton.finished(ids):
        written = QueryState(spark, target.uri, closure.batch)
        after = list(store_rows(session, written, raw=False))
        return compare(before, {store.named: store.frame for store in before}, after, None)


def check_migratable(state: QueryState) -> None:
    """Make sure that state can be written as RocksDB, before anything is written."""
    closure = state.closure
    if closure.spark.provider != "hdfs":
        raise InputError(
            f"The state is not HDFS-backed: {closure.spark.provider or 'the query keeps none'}.",
            code="not-hdfs-backed",
            hint="`streambank state schema` shows how it is kept.",
        )
    limits = [str(one.operator) for one in closure.operators if one.name == GLOBAL_LIMIT]
    if limits:
        raise RefusedError(
            f"The state of a limit (operator {', '.join(limits)}) cannot be written as RocksDB.",
            code="limit-state",
            hint="Spark's writer does not support a limit. Start with an empty checkpoint and RocksDB.",
        )
    schemas = {file.path.split("/")[1] for file in closure.files if file.role == "schema"}
    bare = [str(one.operator) for one in closure.operators if str(one.operator) not in schemas]
    if bare:
        raise RefusedError(
            f"The checkpoint has no state schema of operator {', '.join(bare)}.",
            code="no-state-schema",
            hint="Spark writes it when the query starts: let it run a batch, and take another savepoint.",
        )
    for operator in closure.operators:
        for part in state.parts(operator):
            require_hashable(operator, state.frame(part).schema[KEY].dataType)
