"""The schema of all state of a query: operators, their stores, and every version of the columns of each.

All of it is in small files that a savepoint has, too: operator metadata and state schemas; no Spark is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streambank.checkpoint.grammar import Kind, Part, classify
from streambank.checkpoint.operators import OperatorMetadata, parse_operator_metadata
from streambank.checkpoint.schema.store import Columns, parse_state_schema
from streambank.checkpoint.text import load_json
from streambank.core.json_text import loads

_PROPERTIES = ("timeMode", "outputMode")


@dataclass(frozen=True, slots=True)
class StoreSchema:
    """One state store; what each of its schema files says, oldest first (only version 3 has several)."""

    store: str
    versions: tuple[tuple[Columns, ...], ...]

    @property
    def newest(self) -> Mapping[str, Columns]:
        """Its column families by name, as they are now."""
        return {family.family: family for family in self.versions[-1]} if self.versions else {}

    def history(self, family: str) -> list[Columns]:
        """Every version of a column family, oldest first; rows of each may still be stored."""
        return [one for version in self.versions for one in version if one.family == family]


@dataclass(frozen=True, slots=True)
class OperatorSchema:
    """One stateful operator; Spark 3.5 left no name of it."""

    operator: int
    name: str | None
    stores: tuple[StoreSchema, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuerySchema:
    """All state of a query after one batch, and the settings of its offset log, which win at a start."""

    operators: tuple[OperatorSchema, ...]
    conf: Mapping[str, str]


def read_query_schema(
    paths: Iterable[str], read: Callable[[str], bytes], conf: Mapping[str, str]
) -> QuerySchema:
    """The schema of the state in a closure; `read` is asked for operator metadata and schemas only.

    Raises:
        FormatError: A file is not understood.
        StreambankError: As `read`.
    """
    parts = [part for part in map(classify, paths) if part.operator is not None]
    operators = sorted({part.operator for part in parts if part.operator is not None})
    made = (
        _operator(number, [part for part in parts if part.operator == number], read) for number in operators
    )
    return QuerySchema(tuple(made), dict(conf))


def _operator(number: int, parts: list[Part], read: Callable[[str], bytes]) -> OperatorSchema:
    described = max(
        (part for part in parts if part.kind in (Kind.OPERATOR_V1, Kind.OPERATOR_V2)),
        key=lambda part: -1 if part.batch is None else part.batch,
        default=None,
    )
    if described is None:
        return OperatorSchema(number, None, _stores(parts, None, read))
    data = read(described.path)
    metadata = parse_operator_metadata(data, described.path)
    properties, variables = _said(data, described.path)
    return OperatorSchema(number, metadata.name, _stores(parts, metadata, read), properties, variables)


def _stores(
    parts: list[Part], metadata: OperatorMetadata | None, read: Callable[[str], bytes]
) -> tuple[StoreSchema, ...]:
    fixed = {part.store: part.path for part in parts if part.kind is Kind.SCHEMA_V2}
    named = {f"{part.store}/{part.name}": part.path for part in parts if part.kind is Kind.SCHEMA_V3}
    stores = (
        [store.name for store in metadata.stores] if metadata else sorted({p.store for p in parts if p.store})
    )
    order = {store.name: store.schema_paths for store in metadata.stores} if metadata else {}
    found = []
    for store in stores:
        tails = (path.rpartition("/_stateSchema/")[2] for path in order.get(store, ()))
        files = [named[tail] for tail in tails if tail in named]
        if not files and store in fixed:
            files = [fixed[store]]
        found.append(StoreSchema(store, tuple(parse_state_schema(read(path), path) for path in files)))
    return tuple(found)


def _said(data: bytes, path: str) -> tuple[dict[str, str], dict[str, str]]:
    """What a transformWithState says of itself; nothing for other operators, or another shape."""
    document = load_json(data.decode("utf-8", "replace").partition("\n")[2], path)
    try:
        said = loads(document.get("operatorPropertiesJson") or "{}")
        variables = {
            str(one["stateName"]): str(one["stateVariableType"]) for one in said.get("stateVariables", ())
        }
        return {name: str(said[name]) for name in _PROPERTIES if name in said}, variables
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}, {}
