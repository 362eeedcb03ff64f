"""A query's state rewritten after the same batch: without some keys, with other rows, or in other partitions.

It reads a materialized savepoint and writes into another directory; neither the query nor its savepoint
changes. Logs and schemas are carried over (skeleton.py). Spark writes RocksDB state
(private/state_rewriter.py), and hdfs_rewriter.py the files of HDFS-backed state. Then all of it is read again
and compared (check.py); if it differs, it does not become a checkpoint.

The state that there is, is read twice: to rewrite it, and once more to count it (state/digest.py), since a
row that one read lost would be missing in both. HDFS-backed state is read a third time, by the tasks that
write its files. What was written is read once. To decide which keys go takes another read before (two, to
compare it with an earlier one); where nothing is written, a second read counts the rows that would go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streambank.checkpoint.rewritable import check_join, check_no_limit, check_partitions, check_state
from streambank.core.shape import JsonObject
from streambank.storage.store import Store
from streambank_spark.private.state_rewriter import quiet_session, rewrite_stores
from streambank_spark.rewrite.check import Compared, compare
from streambank_spark.rewrite.expiry import ExpiredKeys
from streambank_spark.rewrite.hdfs_rewriter import GoneRows, rewrite_hdfs_stores
from streambank_spark.rewrite.row_counts import count_once
from streambank_spark.rewrite.row_patch import ChangedRows, Patch, not_encoded
from streambank_spark.rewrite.skeleton import lay_skeleton
from streambank_spark.state.digest import count_kept
from streambank_spark.state.state import QueryState
from streambank_spark.state.store_rows import StoreRows, store_rows


@dataclass(frozen=True, slots=True)
class Rewritten(JsonObject):
    """State that was rewritten."""

    location: str
    batch: int
    stores: tuple[Compared, ...]


def rewrite(
    spark: SparkSession,
    state: QueryState,
    target: Store,
    *,
    derived_from: str,
    gone: Sequence[ExpiredKeys] = (),
    partitions: int | None = None,
    patches: Sequence[Patch] = (),
) -> Rewritten:
    """Rewrite the state of a checkpoint, which must not change, verify it, and make the target a checkpoint.

    Raises:
        RefusedError: It cannot be done with this state; the code says why.
        IntegrityError: What was written differs from what was expected (code `rewrite-differs`); there is no
            checkpoint.
        FormatError: Another Spark, or a file that is not understood.
    """
    check_rewritable(state, partitions)
    closure = state.closure
    hdfs = closure.spark.provider == "hdfs"
    units = {one.operator.operator: one.units for one in gone}
    session = quiet_session(spark, closure.spark.checkpoint_format)
    stores = list(store_rows(session, state))
    alone = frozenset(one.operator for one in stores if one.alone)
    skeleton = lay_skeleton(
        state.store, target, closure, derived_from=derived_from, partitions=partitions, alone=alone
    )
    patched: dict[tuple[int, str], list[Patch]] = {}
    for one in patches:
        patched.setdefault(one.named, []).append(one)
    if not hdfs:
        _require_as_encoded(stores, [one for one in patches if isinstance(one, ChangedRows)])
    if hdfs:
        rewrite_hdfs_stores(state, target.uri, _going(stores, units), patched)
        ids = None
    else:
        change = _change(stores, units, partitions, patched)
        ids = rewrite_stores(session, state.location, target.uri, closure.batch, change)
    unpatched = {store.named: store.without(units.get(store.operator)) for store in stores}
    kept = dict(unpatched)
    counted = {
        store.named: count_kept(store, units.get(store.operator))
        for store in stores
        if store.named not in patched
    }
    for one in patches:
        kept[one.named] = one.in_rows(kept[one.named]) if hdfs else one.in_raw(kept[one.named])
    with skeleton.finished(ids):
        written = QueryState(spark, target.uri, closure.batch)
        after = list(store_rows(session, written))
        if not hdfs:
            count_once(target, written.closure, after)
        compared = compare(stores, kept, after, partitions, counted, unpatched)
        for one in patches:
            one.verify(written)
    return Rewritten(target.uri, closure.batch, compared)


def check_rewritable(state: QueryState, partitions: int | None) -> None:
    """Make sure that state can be rewritten at all, before anything is written.

    Raises:
        RefusedError: There is none (code `no-state`), it is HDFS-backed and would get another
            number of partitions (`hdfs-backed`, `loose-distribution`), or it is RocksDB state of a limit
            (`limit-state`).
    """
    check_state(state.closure)
    check_no_limit(state.store, state.closure)
    check_join(state.closure)
    if partitions is not None:
        check_partitions(state.store, state.closure)


def _require_as_encoded(stores: Sequence[StoreRows], changed: Iterable[ChangedRows]) -> None:
    """Make sure that the store has exactly the bytes that the change replaces."""
    by_name = {store.named: store for store in stores}
    for one in changed:
        found = one.found_raw(by_name[one.named].frame)
        if found != one.rows:
            raise not_encoded(one.place, f"{one.rows - found:,} of them are stored in another format")


def _change(
    stores: Sequence[StoreRows],
    units: Mapping[int, DataFrame],
    partitions: int | None,
    patched: Mapping[tuple[int, str], Sequence[Patch]] = MappingProxyType({}),
) -> Any:
    by_name = {store.named: store for store in stores}

    def change(operator: int, name: str, frame: DataFrame) -> DataFrame:
        store = by_name[operator, name].of(frame)
        kept = store.without(units.get(operator))
        for one in patched.get(store.named, ()):
            kept = one.in_raw(kept)
        if partitions is None or store.alone:
            return kept
        return kept.repartition(partitions, F.col("partition_key"))

    return change


def _going(stores: Sequence[StoreRows], units: Mapping[int, DataFrame]) -> GoneRows:
    by_name = {store.named: store for store in stores}

    def going(operator: int, name: str) -> DataFrame | None:
        gone = units.get(operator)
        if gone is None:
            return None
        return by_name[operator, name].only(gone)

    return going
