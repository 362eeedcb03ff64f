"""Operator metadata for state of Spark 3.5, which writes none: the schemas of the stores say what it is.

Names of columns and their metadata are those that Spark's own operators give them, and no query can (Spark
3.5: SymmetricHashJoinStateManager, StreamingSessionWindowStateManager, StreamingDeduplicateExec,
StreamingDeduplicateWithinWatermarkExec, StreamingGlobalLimitExec, FlatMapGroupsWithStateExecHelper; later:
OperatorStateMetadataV1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streambank.checkpoint.grammar import Kind, classify
from streambank.checkpoint.operators import GLOBAL_LIMIT
from streambank.checkpoint.schema.store import Columns, parse_state_schema
from streambank.checkpoint.shape import Closure, OperatorState
from streambank.core.errors import FormatError
from streambank.storage.store import Readable, Store

_SESSION = "spark.sessionWindow"
_DEDUPE = ["__dummy__"]
_DEDUPE_WITHIN = ["expiresAtMicros"]
_GROUP_STATE, _TIMEOUT = "groupState", "timeoutTimestamp"
_LIMIT = ([("key", "void")], [("value", "long")])


def write_missing_metadata(checkpoint: Store, closure: Closure) -> tuple[str, ...]:
    """Write operator metadata of version 1, as Spark 4.0 does, where a copy has none; gives the paths.

    None for an operator one of whose stores has no schema. Spark's state reader takes from it how the keys of
    session windows are encoded in RocksDB, and which columns of a key say in what partition a row is.

    Raises:
        FormatError: A schema is not understood.
    """
    made = {}
    for operator, stores in _unnamed(checkpoint, closure):
        partitions = closure.spark.shuffle_partitions or max(store.partitions for store in operator.stores)
        made[f"state/{operator.operator}/_metadata/metadata"] = _metadata(
            operator.operator, stores, partitions
        )
    for path, data in made.items():
        checkpoint.write(path, data)
    return tuple(made)


def operator_names(checkpoint: Readable, closure: Closure) -> dict[int, str]:
    """Spark's name of each operator, by its metadata or by its schemas; without those that have neither.

    Raises:
        FormatError: A schema is not understood.
    """
    names = {operator.operator: operator.name for operator in closure.operators if operator.name is not None}
    return names | {one.operator: operator_name(stores) for one, stores in _unnamed(checkpoint, closure)}


def operator_name(stores: Mapping[str, Columns]) -> str:
    """Spark's name of an operator, by the schemas of its stores.

    `applyInPandasWithState` keeps what `flatMapGroupsWithState` keeps, and is taken for that.

    Raises:
        FormatError: No operator has such stores (code `unknown-operators`).
    """
    if any(name.startswith("left-") for name in stores):
        return "symmetricHashJoin"
    columns, *others = stores.values()
    if others:
        raise FormatError(
            f"The stores {', '.join(stores)} are of no stateful operator that is known.",
            code="unknown-operators",
            hint="Another program wrote them, or a file was lost: restore a savepoint.",
        )
    key, value = _fields(columns.key), _fields(columns.value)
    names = [name for name, _ in value]
    if _is_session(columns):
        return "sessionWindowStateStoreSaveExec"
    if names == _DEDUPE:
        return "dedupe"
    if names == _DEDUPE_WITHIN:
        return "dedupeWithinWatermark"
    if (key, value) == _LIMIT:
        return GLOBAL_LIMIT
    if names[:1] == [_GROUP_STATE] or names[-1:] == [_TIMEOUT]:
        return "flatMapGroupsWithState"
    return "stateStoreSave"


def _unnamed(checkpoint: Readable, closure: Closure) -> Iterator[tuple[OperatorState, dict[str, Columns]]]:
    parts = [part for part in map(classify, closure.paths) if part.kind is Kind.SCHEMA_V2]
    schemas = {(part.operator, part.store): part.path for part in parts}
    for operator in closure.operators:
        paths = {store.store: schemas.get((operator.operator, store.store)) for store in operator.stores}
        there = {name: path for name, path in paths.items() if path is not None}
        if operator.name is None and len(there) == len(paths):
            yield operator, {name: only_columns(checkpoint.read(path), path) for name, path in there.items()}


def only_columns(data: bytes, path: str) -> Columns:
    """The columns of a store that has but one kind of rows.

    Raises:
        FormatError: It has others (code `unknown-version`), or is not understood.
    """
    found = parse_state_schema(data, path)
    if len(found) != 1:
        raise FormatError(
            f"{path} has {len(found)} column families, and an operator without metadata has one.",
            code="unknown-version",
            hint="A newer Spark wrote it: report the Spark version.",
        )
    return found[0]


def _is_session(columns: Columns) -> bool:
    return any(_SESSION in (field.get("metadata") or {}) for field in columns.value["fields"])


def _fields(kind: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(field["name"], field["type"]) for field in kind["fields"]]


def _metadata(operator: int, stores: Mapping[str, Columns], partitions: int) -> bytes:
    document = {
        "operatorInfo": {"operatorId": operator, "operatorName": operator_name(stores)},
        "stateStoreInfo": [
            {"storeName": name, "numColsPrefixKey": _prefix(columns), "numPartitions": partitions}
            for name, columns in stores.items()
        ],
    }
    return b"v1\n" + json.dumps(document, separators=(",", ":")).encode()


def _prefix(columns: Columns) -> int:
    """The number of columns in the prefix by which Spark finds keys: of a session all but its start."""
    keys: Sequence[Any] = columns.key["fields"]
    return len(keys) - 1 if _is_session(columns) else 0
