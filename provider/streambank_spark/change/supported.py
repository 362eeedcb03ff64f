"""Which state can be transformed and made from a table: one row of a table for each kind of operator.

docs/howto/make-state.md shows the table. A test compares the two, and another one tries each cell with Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streambank.checkpoint.closure import OperatorState
from streambank.checkpoint.rewritable import STRICT, is_strict
from streambank.core.errors import RefusedError
from streambank_spark.change.columns import has_floats_inside
from streambank_spark.rewrite.repair import check_part
from streambank_spark.rewrite.validate_request import VALUE
from streambank_spark.state.key_unit import require_hashable, unit_fields
from streambank_spark.state.state import QueryState, StatePart

BOOTSTRAP, SET, DELETE = "bootstrap", "set", "delete"
TTL = "ttlExpirationMs"
"""The column by which Spark finds expired values, with an index beside them."""
HDFS, ROCKSDB, CHANGELOG = "HDFS-backed", "RocksDB", "RocksDB, changelog"
AGGREGATION_FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"
STORES = (HDFS, ROCKSDB, CHANGELOG)


@dataclass(frozen=True, slots=True)
class StateKind:
    """One kind of state, and what can be done with it: `BOOTSTRAP`, `SET`, `DELETE`."""

    name: str
    can: tuple[str, ...]
    why: str = ""
    stores: tuple[str, ...] = STORES


_ONLY_ROCKSDB = (ROCKSDB, CHANGELOG)
AGGREGATION = StateKind("aggregation, with or without windows", (BOOTSTRAP, SET, DELETE))
GLOBAL = StateKind("aggregation of all input (no key)", (BOOTSTRAP, SET), "it has no keys")
SESSION = StateKind("session window", (SET, DELETE), "each row repeats its key and its session")
DEDUP = StateKind("`dropDuplicates`", (BOOTSTRAP, DELETE), "it keeps keys alone")
WITHIN = StateKind("`dropDuplicatesWithinWatermark`", (BOOTSTRAP, SET, DELETE))
JOIN = StateKind("stream-stream join", (DELETE,), "counters and flags belong to its rows")
GROUP_STATE = StateKind("`applyInPandasWithState`, `flatMapGroupsWithState`", (BOOTSTRAP, SET, DELETE))
VARIABLE = StateKind("value of `transformWithState`", (BOOTSTRAP, SET, DELETE), stores=_ONLY_ROCKSDB)
WITH_TTL = StateKind(
    "value of `transformWithState` with a TTL",
    (SET, DELETE),
    "Spark keeps an index of the times of expiry",
    _ONLY_ROCKSDB,
)
COLLECTION = StateKind(
    "list, map, timers of `transformWithState`",
    (DELETE,),
    "a key has several values there",
    _ONLY_ROCKSDB,
)
LIMIT = StateKind("limit", (), "it keeps one number for all input")
KINDS = (
    AGGREGATION, GLOBAL, SESSION, DEDUP, WITHIN, JOIN, GROUP_STATE, VARIABLE, WITH_TTL, COLLECTION, LIMIT,
)  # fmt: skip
AGGREGATIONS = (AGGREGATION, GLOBAL, SESSION)
"""Those whose values are buffers of aggregate functions."""
_BY_NAME = {
    "sessionWindow": SESSION,
    "dedupeWithinWatermark": WITHIN,
    "dedupe": DEDUP,
    "symmetricHashJoin": JOIN,
    "flatMapGroupsWithState": GROUP_STATE,
    "applyInPandasWithState": GROUP_STATE,
    "transformWithState": VARIABLE,
    "globalLimit": LIMIT,
    "stateStoreSave": AGGREGATION,
}
"""By the beginning of Spark's name of the operator; the first that fits."""


def kind_of(operator: OperatorState, part: StatePart, frame: DataFrame) -> StateKind | None:
    """The kind of a part's state; None for an operator that is not known."""
    name = operator.name or ""
    found = next((kind for start, kind in _BY_NAME.items() if name.startswith(start)), None)
    if found is VARIABLE:
        value = frame.schema[VALUE].dataType if VALUE in frame.columns else None
        if not isinstance(value, StructType):
            return COLLECTION
        return WITH_TTL if TTL in value.names else VARIABLE
    if found is AGGREGATION and not unit_fields(operator, part.name, frame.schema["key"].dataType):
        return GLOBAL
    return found


def require(
    what: str, state: QueryState, operator: OperatorState, part: StatePart, frame: DataFrame
) -> StateKind:
    """Make sure that something (`BOOTSTRAP` or `SET`) can be done with a part's state.

    Raises:
        RefusedError: It cannot (codes `cannot-make-state`, `key-type`), or the rows are stored in another way
            (as `check_part`).
    """
    kind = kind_of(operator, part, frame)
    if kind is None or what not in kind.can:
        done = "made from a table" if what == BOOTSTRAP else "set by an expression"
        why = "the operator is not known here" if kind is None else kind.why
        raise RefusedError(
            f"State of operator {operator.operator} ({operator.name}), {part.name}, cannot be {done}: {why}.",
            code="cannot-make-state",
            hint="docs/howto/make-state.md has a table of what can be done with which state.",
        )
    require_hashable(operator, frame.schema["key"].dataType)
    if what == BOOTSTRAP:
        _check_bootstrap(state, operator, part, kind, frame)
    check_part(state, operator, part, frame)
    return kind


def _check_bootstrap(
    state: QueryState, operator: OperatorState, part: StatePart, kind: StateKind, frame: DataFrame
) -> None:
    place = f"operator {operator.operator} ({operator.name}), {part.name}"
    why = None
    if kind is AGGREGATION and state.closure.offset_conf.get(AGGREGATION_FORMAT) == "1":
        why = f"each value repeats its key ({AGGREGATION_FORMAT} is 1)"
    elif has_floats_inside(frame.schema["key"].dataType):
        why = "its key has floating-point numbers in a list"
    elif kind is not GLOBAL and not is_strict(state.closure):
        why = f"the key does not say in which partition Spark looks for a row ({STRICT} is false)"
    if why is not None:
        raise RefusedError(
            f"State of {place} cannot be made from a table: {why}.",
            code="cannot-make-state",
            hint="docs/howto/make-state.md has a table of what can be done with which state.",
        )


def table() -> list[str]:
    """The table as lines of Markdown: what can be done with each kind in each store."""
    head = ["state", *STORES, "why not more"]
    rows = [head, ["---"] * len(head)]
    for kind in KINDS:
        cells = [", ".join(kind.can) or "no" if store in kind.stores else "" for store in STORES]
        rows.append([kind.name, *cells, kind.why])
    return [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
