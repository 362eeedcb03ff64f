"""The unit of an operator's state: the key that its input is grouped by, which decides the partition.

An operator may keep many rows for one such key: elements of a list, sessions, rows of a side of a join,
timers. They belong together, often across stores (a join counts the rows of a key in one store and keeps them
in another), so state is taken away by the unit and never by the row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StructType

from streambank.checkpoint.closure import OperatorState
from streambank.core.errors import FormatError
from streambank_spark.state.state import PARTITION

UNIT = "unit"
_SESSION = "sessionWindow"
_INDEXED = "keyWithIndexToValue"


def unit_fields(operator: OperatorState, store: str, key: DataType) -> list[str]:
    """The fields of a state key that make up the unit; none where all input is one group.

    A session's key has the session's start behind the grouping keys, and a row of a join its number behind
    the join keys.

    Args:
        operator: The operator.
        store: The store that the key is of, or the part that the state reader calls so.
        key: The key's type as the state reader gives it.

    Raises:
        FormatError: It is no struct (code `unknown-type`).
    """
    if not isinstance(key, StructType):
        raise FormatError(
            f"The state of operator {operator.operator} has keys of the type {key.simpleString()}.",
            code="unknown-type",
            hint="Report it, with the Spark version.",
        )
    fields = key.fields
    if (operator.name or "").startswith(_SESSION) or store.endswith(_INDEXED):
        fields = fields[:-1]
    if all(isinstance(field.dataType, NullType) for field in fields):
        return []
    return [field.name for field in fields]


def unit_of(frame: DataFrame, operator: OperatorState, store: str) -> Column | None:
    """The unit of each row of a frame of state as a struct; None where all input is one group."""
    names = unit_fields(operator, store, frame.schema["key"].dataType)
    if not names:
        return None
    return F.struct(*(F.col("key").getField(name).alias(f"_{n}") for n, name in enumerate(names)))


def partition_of(unit: DataFrame, partitions: int) -> Column:
    """The partition that Spark looks for a unit in (HashPartitioning: Murmur3 with seed 42, then modulo).

    Args:
        unit: A frame with a column `UNIT`.
        partitions: How many there are.
    """
    return F.pmod(F.hash(f"{UNIT}.*"), F.lit(partitions))


def misplaced(frame: DataFrame, operator: OperatorState, store: str, partitions: int) -> int:
    """How many rows lie in another partition than the one in which Spark looks for them."""
    unit = unit_of(frame, operator, store)
    expected = F.lit(0)
    if unit is not None:
        frame = frame.select(unit.alias(UNIT), PARTITION)
        expected = partition_of(frame, partitions)
    return frame.where(expected != F.col(PARTITION)).count()
