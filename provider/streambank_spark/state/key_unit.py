"""The unit of an operator's state: the key that its input is grouped by, which decides the partition.

An operator may keep many rows for one such key: elements of a list, sessions, rows of a side of a join,
timers. They belong together, often across stores (a join counts the rows of a key in one store and keeps them
in another), so state is taken away by the unit and never by the row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructType

from streambank.checkpoint.closure import OperatorState
from streambank.core.errors import FormatError, RefusedError
from streambank_spark.state.columns import fields_of

UNIT = "unit"
_SESSION = "sessionWindow"
_INDEXED = "keyWithIndexToValue"


def unit_fields(operator: OperatorState, store: str, key: DataType) -> list[str]:
    """The fields of a state key that make up the unit; none where all input is one group.

    A session's key has the session's start behind the grouping keys, and a row of a join its number behind
    the join keys.

    Args:
        store: The store that the key is of, or the part that the state reader calls so.

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


def unit_of(frame: DataFrame, operator: OperatorState, store: str, *, hashable: bool = True) -> Column | None:
    """Each row's unit as a struct, `hashable` if not only read; None where all input is one group."""
    kind = frame.schema["key"].dataType
    count = len(unit_fields(operator, store, kind))
    if not count:
        return None
    assert isinstance(kind, StructType)
    if hashable:
        require_hashable(operator, kind)
    return unit_from(F.col("key"), kind, count)


def require_hashable(operator: OperatorState, key: DataType) -> None:
    """Make sure that the partition of a key can be computed.

    Raises:
        RefusedError: There is a map in it, which SQL neither hashes nor compares (code `key-type`).
    """
    if _has_map(key):
        raise RefusedError(
            f"State of operator {operator.operator} ({operator.name}) has a map in its key, and cannot be "
            "rewritten.",
            code="key-type",
            hint="Start the query with an empty checkpoint, and group by to_json(the map) instead.",
        )


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_map(one.dataType) for one in kind.fields)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and _has_map(kind.elementType))


def unit_from(key: Column, kind: StructType, count: int) -> Column:
    """The first fields of a key of this type as `_0`, `_1` and so on: two may have the same name."""
    return F.struct(*(field.alias(f"_{n}") for n, field in enumerate(fields_of(key, kind)[:count])))


def partition_of(unit: DataFrame, partitions: int) -> Column:
    """The partition where Spark looks for `UNIT` (HashPartitioning: Murmur3 with seed 42, then modulo)."""
    return F.pmod(F.hash(f"{UNIT}.*"), F.lit(partitions))
