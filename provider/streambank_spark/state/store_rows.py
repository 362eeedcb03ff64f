"""The rows of each state store as they are rewritten: raw where Spark rewrites them, else as it reads.

Unlike the parts of state.py, which are what a person wants to see, these are all that is in a store: counters
of a join, whether a row of it has found another one, indexes of timers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructType

from streambank.checkpoint.closure import OperatorState
from streambank_spark.private.state_rewriter import raw_rows
from streambank_spark.state.key_unit import UNIT, require_hashable, unit_of
from streambank_spark.state.state import QueryState, store_part

GONE = "_gone"
_UNIT = "_unit"
_PARTITION_KEY = "partition_key"


@dataclass(frozen=True, slots=True)
class StoreRows:
    """One store; raw rows are partition_key, key_bytes, value_bytes, column_family_name."""

    of_operator: OperatorState
    name: str
    partitions: int
    bytes: int
    frame: DataFrame
    raw: bool

    @property
    def operator(self) -> int:
        return self.of_operator.operator

    @property
    def named(self) -> tuple[int, str]:
        return self.operator, self.name

    @property
    def alone(self) -> bool:
        """Whether all input is one group, in one partition whatever the settings say."""
        return self.unit() is None

    def of(self, frame: DataFrame) -> StoreRows:
        return replace(self, frame=frame)

    def unit(self) -> Column | None:
        """The unit of each row; None where all input is one group."""
        if not self.raw:
            return unit_of(self.frame, self.of_operator, self.name)
        kind = self.frame.schema[_PARTITION_KEY].dataType
        assert isinstance(kind, StructType)
        if all(isinstance(field.dataType, NullType) for field in kind.fields):
            return None
        require_hashable(self.of_operator, kind)
        return F.col(_PARTITION_KEY)

    def without(self, units: DataFrame | None) -> DataFrame:
        """The rows of all other units, in the order and the partitions that they are in."""
        return self.frame if units is None else self._joined(units, "left_anti")

    def only(self, units: DataFrame) -> DataFrame:
        return self._joined(units, "left_semi")

    def marked(self, units: DataFrame | None) -> DataFrame:
        """All rows as they are, with `GONE`: whether a row is of one of the units; each of those once."""
        if units is None:
            return self.frame.withColumn(GONE, F.lit(False))
        return self._joined(units, "left_outer").withColumn(GONE, F.col(_UNIT).isNotNull()).drop(_UNIT)

    def _joined(self, units: DataFrame, how: str) -> DataFrame:
        unit = self.unit()
        assert unit is not None
        kind = self.frame.select(unit.alias(UNIT)).schema[UNIT].dataType
        named = F.broadcast(units.select(F.col(UNIT).cast(kind).alias(_UNIT)))
        # Broadcast: rows stay in their partition, and elements of a list in their order.
        return self.frame.join(named, unit == F.col(_UNIT), how)


def store_rows(session: SparkSession, state: QueryState, *, raw: bool | None = None) -> Iterator[StoreRows]:
    """All stores of a state, by a `quiet_session`; raw for None unless HDFS-backed, which has no raw rows."""
    if raw is None:
        raw = state.closure.spark.provider == "rocksdb"
    for operator in state.closure.operators:
        for store in operator.stores:
            if raw:
                frame = raw_rows(session, state.location, state.closure.batch, operator.operator, store.store)
            else:
                frame = state.frame(store_part(operator, store.store))
            yield StoreRows(operator, store.store, store.partitions, store.bytes, frame, raw)
