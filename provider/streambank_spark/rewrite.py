"""A query's state written anew after the same batch: without some keys, or in other partitions.

What is read is a savepoint that was laid out, and what is written is a directory of its own. Neither the
query nor its savepoint notices. Logs and schemas are carried over (skeleton.py), the state is written by
Spark where it is RocksDB (spark_rewriter.py) and as files where it is HDFS-backed (hdfs_rewriter.py). Then it
is all read again and compared (rewrite_check.py); what is not as it has to be is no checkpoint for long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streambank.errors import RefusedError
from streambank.storage.base import Store
from streambank_spark.expiry import Expired
from streambank_spark.hdfs_rewriter import rewrite_hdfs_stores
from streambank_spark.rewrite_check import Compared, compare
from streambank_spark.skeleton import lay_skeleton
from streambank_spark.spark_rewriter import quiet_session, rewrite_stores
from streambank_spark.state import QueryState
from streambank_spark.store_rows import StoreRows, store_rows
from streambank_spark.unit import UNIT


@dataclass(frozen=True, slots=True)
class Rewritten:
    """State that was written anew.

    Attributes:
        location: The checkpoint that has it.
        batch: After which batch.
        stores: What became of each store.
    """

    location: str
    batch: int
    stores: tuple[Compared, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "location": self.location,
            "batch": self.batch,
            "stores": [store.to_dict() for store in self.stores],
        }


def rewrite(
    spark: SparkSession,
    state: QueryState,
    target: Store,
    *,
    derived_from: str,
    gone: Sequence[Expired] = (),
    partitions: int | None = None,
) -> Rewritten:
    """Write the state of a checkpoint anew, verify it, and make the target a checkpoint.

    Args:
        spark: A session; settings of it are left alone.
        state: What is read; nobody may write there meanwhile.
        target: An empty place of our own.
        derived_from: Where the state comes from, for the offset log.
        gone: What is left out.
        partitions: Another number of state partitions.

    Raises:
        RefusedError: It cannot be done with this state; the code says why.
        IntegrityError: What was written is not what it has to be (code `rewrite-differs`); there is no
            checkpoint.
        FormatError: Another Spark, or a file that is not understood.
        StorageError: Spark or the environment failed.
    """
    closure = state.closure
    if closure.spark.provider is None:
        raise RefusedError(
            "The query keeps no state: there is nothing to rewrite.",
            code="no-state",
            hint="`streambank inspect` shows what a checkpoint holds.",
        )
    hdfs = closure.spark.provider == "hdfs"
    if hdfs and partitions is not None:
        raise RefusedError(
            "HDFS-backed state cannot be spread over another number of partitions: Spark refuses it, too.",
            code="hdfs-backed",
            hint="`streambank state migrate --partitions N` makes it RocksDB, in that many partitions.",
        )
    units = {one.operator.operator: one.units for one in gone}
    session = quiet_session(spark, closure.spark.checkpoint_format)
    stores = list(store_rows(session, state))
    alone = frozenset(one.operator for one in stores if one.alone)
    skeleton = lay_skeleton(
        state.store, target, closure, derived_from=derived_from, partitions=partitions, alone=alone
    )
    kept = {store.named: store.without(units.get(store.operator)) for store in stores}
    if hdfs:
        by_name = {store.named: store for store in stores}

        def going(operator: int, store: str) -> DataFrame | None:
            gone_units = units.get(operator)
            return None if gone_units is None else by_name[operator, store].only(gone_units)

        rewrite_hdfs_stores(state, target.uri, going)
        ids = None
    else:
        ids = rewrite_stores(
            session, state.location, target.uri, closure.batch, _change(stores, units, partitions)
        )
    with skeleton.finished(ids):
        written = QueryState(spark, target.uri, closure.batch)
        compared = compare(stores, kept, list(store_rows(session, written)), partitions)
    return Rewritten(target.uri, closure.batch, compared)


def _change(stores: Sequence[StoreRows], units: Mapping[int, DataFrame], partitions: int | None) -> Any:
    by_name = {store.named: store for store in stores}

    def change(operator: int, name: str, frame: DataFrame) -> DataFrame:
        store = by_name[operator, name].of(frame)
        kept = store.without(units.get(operator))
        if partitions is None or store.alone:
            return kept
        return kept.repartition(partitions, F.col("partition_key"))

    return change


__all__ = ["UNIT", "Rewritten", "rewrite"]
