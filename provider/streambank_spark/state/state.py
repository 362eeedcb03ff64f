"""The state of a query after one batch as DataFrames, read by Spark's own state reader.

The engine plans the closure first. So a partition that is missing is an error, which the reader alone would
pass over in silence, and the reader is told the checkpoint format, which it takes from the session and not
from the checkpoint. Only reads: stores are opened without Spark's maintenance, which would delete files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streambank.checkpoint.closure import Closure, OperatorState
from streambank.checkpoint.reader import CheckpointReader
from streambank.core.errors import InputError
from streambank.storage import open_store
from streambank_spark.private.state_rewriter import FORMAT_VERSION

PARTITION = "partition_id"
TIMERS = "timers"
_SHUFFLE = "spark.sql.shuffle.partitions"
_BYTES_A_TASK = 8 << 20
"""How much compressed state a task of a shuffle gets; 200 tasks over a few rows would take a minute."""
_MOST_TASKS = 200
"""Spark's own default."""
_SIDES = ("left", "right")
_COLLECTIONS = ("list_value", "map_value")


@dataclass(frozen=True, slots=True)
class StatePart:
    """What the state reader reads at once.

    Attributes:
        name: `left` or `right` of a join, a state variable of a transformWithState, its `timers`, or else
            the store.
    """

    operator: int
    name: str
    options: Mapping[str, str] = field(default_factory=dict)


def parts_of(operator: OperatorState) -> list[StatePart]:
    """All parts of an operator; together they hold all that it remembers.

    What is left out is Spark's own: indexes by time of expiry, counters, and of a join whether a row has
    found another one (`matched`), which the state reader does not show.
    """
    if operator.variables or operator.timers:
        parts = [StatePart(operator.operator, name, {"stateVarName": name}) for name in operator.variables]
        if operator.timers:
            # Of a variable of that name, there is a part of each.
            parts.append(StatePart(operator.operator, TIMERS, {"readRegisteredTimers": "true"}))
        return parts
    stores = [store.store for store in operator.stores]
    if operator.name == "symmetricHashJoin" or any(name.startswith("left-") for name in stores):
        return [StatePart(operator.operator, side, {"joinSide": side}) for side in _SIDES]
    return [store_part(operator, name) for name in stores]


def store_part(operator: OperatorState, store: str) -> StatePart:
    """A store of an operator, as it is: of a join, with what Spark keeps beside the rows."""
    return StatePart(operator.operator, store, {"storeName": store} if len(operator.stores) > 1 else {})


class QueryState:
    """The state of a checkpoint after one batch.

    Args:
        spark: A session; settings of it are left alone.
        location: The checkpoint, as Spark and the engine both read it.
        batch: After which committed batch; the newest one for None.

    Attributes:
        session: Its own session, which reads it as it was written.
    """

    def __init__(self, spark: SparkSession, location: str, batch: int | None = None) -> None:
        self.store = open_store(location)
        self.location = location if "://" in location else self.store.uri
        self.closure: Closure = CheckpointReader(self.store).closure(batch, "minimal")
        self.session = spark.newSession()
        self.session.conf.set(FORMAT_VERSION, str(self.closure.spark.checkpoint_format))
        if not spark.sparkContext.getConf().contains(_SHUFFLE):
            tasks = max(spark.sparkContext.defaultParallelism, self.closure.bytes // _BYTES_A_TASK)
            self.session.conf.set(_SHUFFLE, str(min(tasks, _MOST_TASKS)))

    def operators(self, wanted: int | None = None) -> Sequence[OperatorState]:
        """The stateful operators, or the one of this id."""
        found = [each for each in self.closure.operators if wanted in (None, each.operator)]
        if wanted is not None and not found:
            raise InputError(
                f"The query has no stateful operator {wanted}.",
                hint=f"It has: {', '.join(str(each.operator) for each in self.closure.operators) or 'none'}.",
            )
        return found

    def parts(self, operator: OperatorState, wanted: str | None = None) -> list[StatePart]:
        """The parts of an operator, or the one of a name or store, such as `left-keyWithIndexToValue`."""
        every = parts_of(operator)
        found = [part for part in every if wanted in (None, part.name)]
        if not found and len(operator.stores) > 1:
            found = [store_part(operator, store.store) for store in operator.stores if store.store == wanted]
        if not found:
            raise InputError(
                f"Operator {operator.operator} has no state called {wanted}.",
                hint=f"It has: {', '.join(part.name for part in every)}.",
            )
        return found

    def frame(self, part: StatePart) -> DataFrame:
        """Its rows: `key`, what belongs to it (`value`, or an element of a list or map), and `PARTITION`.

        Of timers that is `expiration_timestamp_ms`.
        """
        return self._load(part, {})

    def whole(self, part: StatePart) -> DataFrame:
        """The same with each list and map as one value of its key, so that the order of a list is told."""
        return self._load(part, {"flattenCollectionTypes": "false"} if "stateVarName" in part.options else {})

    def _load(self, part: StatePart, more: Mapping[str, str]) -> DataFrame:
        reader = self.session.read.format("statestore").option("batchId", self.closure.batch)
        return reader.option("operatorId", part.operator).options(**part.options, **more).load(self.location)


def elements(frame: DataFrame) -> Column | None:
    """How many elements a row of `QueryState.whole` stands for; None where each row is one."""
    for name in _COLLECTIONS:
        if name in frame.columns:
            return F.size(name)
    return None


def schema_of(state: QueryState) -> dict[str, Any]:
    """The schema of all state, as JSON; no row is read."""
    facts = state.closure.spark
    return {
        "batch": state.closure.batch,
        "provider": facts.provider,
        "checkpoint_format": facts.checkpoint_format,
        "codec": facts.codec,
        "operators": [
            {
                "operator": operator.operator,
                "name": operator.name,
                "stores": [
                    {"store": store.store, "partitions": store.partitions, "rows": store.rows}
                    for store in operator.stores
                ],
                "parts": [
                    {
                        "part": part.name,
                        "columns": [
                            {
                                "column": field.name,
                                "type": field.dataType.simpleString(),
                                "nullable": field.nullable,
                            }
                            for field in state.frame(part).schema.fields
                            if field.name != PARTITION
                        ],
                    }
                    for part in state.parts(operator)
                ],
            }
            for operator in state.operators()
        ],
    }
