"""What a stateful operator says of itself: operator metadata v1 and v2, and the schemas of its stores.

Spark 3.5 writes no operator metadata; then the directories tell (Spark: OperatorStateMetadata, StateSchema).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.text import half_written, load_json, parse_version
from streambank.core.errors import FormatError
from streambank.core.json_text import loads

GLOBAL_LIMIT = "globalLimit"
MAX_OPERATOR_VERSION = 2
_SPARKS_OWN = "$"
"""How names of Spark's own state variables begin; an application's cannot."""
_TIMED = ("EventTime", "ProcessingTime")


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """One state store of an operator.

    Attributes:
        partitions: How many partitions the operator was declared with. The offset log's setting wins after a
            repartition, and an operator without grouping keys has one partition whatever this says.
        schema_paths: Absolute paths of its schema files (v2 only).
    """

    name: str
    partitions: int
    schema_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """What an operator is.

    Attributes:
        name: Spark's name of it, such as `stateStoreSave` or `symmetricHashJoin`.
        stores: Its stores, in the order in which unique ids of the commit log are given.
    """

    version: int
    operator: int
    name: str
    stores: tuple[StoreInfo, ...]
    variables: tuple[str, ...] = ()
    timers: bool = False


def parse_operator_metadata(data: bytes, path: str) -> OperatorMetadata:
    """Operator metadata of either version.

    Raises:
        FormatError: `half-written` or `unknown-version`.
    """
    first, _, rest = data.decode("utf-8", "replace").partition("\n")
    version = parse_version(first, path, MAX_OPERATOR_VERSION)
    try:
        document = load_json(rest, path)
        info = document["operatorInfo"]
        properties = _properties(document.get("operatorPropertiesJson"))
        return OperatorMetadata(
            version=version,
            operator=int(info["operatorId"]),
            name=str(info["operatorName"]),
            stores=tuple(_store(entry) for entry in document["stateStoreInfo"]),
            variables=_variables(properties),
            timers=properties.get("timeMode") in _TIMED,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise half_written(f"{path} is not understood: {error}.") from error


def require_schemas(metadata: OperatorMetadata, path: str) -> None:
    """Make sure that metadata of version 2 names a schema of each store, as every released Spark does.

    Without it the schema files would be left out of a savepoint, and nobody would notice.

    Raises:
        FormatError: It does not (code `unknown-version`).
    """
    for store in metadata.stores if metadata.version == MAX_OPERATOR_VERSION else ():
        if not store.schema_paths:
            raise FormatError(
                f"{path} names no schema of the store {store.name} in a way that is known.",
                code="unknown-version",
                hint="A Spark before its release wrote it, or a newer one: run the query with a release from "
                "3.5 to 4.3, or report the Spark version.",
            )


def _store(entry: Any) -> StoreInfo:
    return StoreInfo(
        str(entry["storeName"]),
        int(entry["numPartitions"]),
        tuple(flatten(entry.get("stateSchemaFilePaths"))),
    )


def _properties(text: Any) -> dict[str, Any]:
    """An operator's properties, a JSON text within the JSON.

    Nothing that a closure rests on: what a later Spark may write there instead is no reason to refuse it.
    """
    try:
        properties = loads(text or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return properties if isinstance(properties, dict) else {}


def _variables(properties: dict[str, Any]) -> tuple[str, ...]:
    """Those of the application: Spark lists one of its own for timers, which is read in another way."""
    try:
        names = [str(variable["stateName"]) for variable in properties.get("stateVariables") or ()]
        return tuple(name for name in names if not name.startswith(_SPARKS_OWN))
    except (TypeError, KeyError, AttributeError):
        return ()


def flatten(paths: Any) -> Iterator[str]:
    """Strings in nested lists, in order; Spark versions nest `stateSchemaFilePaths` differently."""
    if isinstance(paths, str):
        yield paths
    elif isinstance(paths, list):
        for path in paths:
            yield from flatten(path)
