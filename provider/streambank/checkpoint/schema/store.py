"""What the schema of a state store says: its columns, and whether Spark has a way to remove rows.

Of version 1 and 2 a file holds one key and one value; of version 3 one of each for every column family, with
how keys are encoded (Spark: StateSchemaCompatibilityChecker, SchemaHelper). All texts are Java's UTF strings;
from version 2 on a schema is cut into chunks of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.text import half_written, load_json
from streambank.core.errors import FormatError
from streambank.core.json_text import loads

WATERMARK = "spark.watermarkDelayMs"
"""In the metadata of a column: event time that a watermark follows."""
TIMEOUTS = ("timeoutTimestamp", "expiresAtMicros", "ttlExpirationMs")
"""Columns in which Spark keeps when a row is to go (FlatMapGroupsWithState, dropDuplicatesWithinWatermark,
state variables with TTL)."""


def names_apart(names: Sequence[str]) -> list[str]:
    """A name for each column of a key or a value, as expressions over state call it.

    Spark names the columns of an aggregation's value after its buffers, so two sums are both called `sum`;
    and the key of `dropDuplicates` may have two columns of one name. Here the second one is `sum_2`.
    """
    taken: set[str] = set()
    stored = {name.casefold() for name in names}
    found = []
    for stem in names:
        name, count = stem, 1
        while name.casefold() in taken or (count > 1 and name.casefold() in stored):
            count += 1
            name = f"{stem}_{count}"
        taken.add(name.casefold())
        found.append(name)
    return found


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one kind of rows in a store.

    Attributes:
        family: Name of the column family; `default` where there is but one kind.
        value_id: How many times the value's schema has evolved (version 3 only).
    """

    family: str
    key: Mapping[str, Any]
    value: Mapping[str, Any]
    value_id: int = 0

    @property
    def event_time(self) -> str | None:
        """The column of event time by which a watermark removes rows; None for none.

        It is in the key, but for rows that a join keeps and for windows of sessions.
        """
        fields, values = [*_fields(self.key)], [*_fields(self.value)]
        in_key, in_row = {one["name"] for one in fields}, {one["name"] for one in (*fields, *values)}
        if "sessionStartTime" in in_key or {"index", "matched"} <= in_row:
            fields += values
        return next((str(one["name"]) for one in fields if WATERMARK in (one.get("metadata") or {})), None)

    @property
    def timeout(self) -> str | None:
        """The column that says when a row is to go; None for none."""
        return next((str(one["name"]) for one in _fields(self.value) if one["name"] in TIMEOUTS), None)

    @property
    def collections(self) -> tuple[str, ...]:
        """Arrays and maps in the value, with their path and type, such as `events array<struct>`."""
        return tuple(_collections(self.value, ""))

    @property
    def keyless(self) -> bool:
        return all(one.get("type") == "void" for one in _fields(self.key))


@dataclass(frozen=True, slots=True)
class Variables:
    """What a transformWithState says of its state variables.

    Attributes:
        time_mode: `NoTime`, `ProcessingTime` or `EventTime`; only with the last two may it have timers.
        without_ttl: Names of those that nothing expires.
        lists: Names of those that are a ListState.
    """

    time_mode: str
    without_ttl: tuple[str, ...]
    with_ttl: tuple[str, ...]
    lists: tuple[str, ...] = ()


def parse_state_schema(data: bytes, path: str) -> tuple[Columns, ...]:
    """The columns of a store.

    Raises:
        FormatError: It is not understood (code `half-written` or `unknown-version`).
    """
    try:
        reading = _Reading(data)
        version = reading.text()
        if version == "v1":
            return (Columns("default", _struct(reading.text()), _struct(reading.text())),)
        if version == "v2":
            return (Columns("default", _struct(reading.chunks()), _struct(reading.chunks())),)
        if version == "v3":
            return tuple(reading.family() for _ in range(reading.number(">i")))
    except (struct.error, UnicodeDecodeError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise half_written(
            f"{path} is not a readable state schema: {error}.",
            "Spark writes a schema of version 1 or 2 again when the query starts.",
        ) from error
    raise FormatError(
        f"{path} is of version {version[:20]!r}, and known are v1 to v3.",
        code="unknown-version",
        hint="A newer Spark wrote it: report the Spark version.",
    )


def is_keyless(schema: bytes) -> bool | None:
    """Whether a store has no key columns, as a global aggregation or a limit has; they run in one partition.

    Only the key is read, of version 1 or 2; None where that is not understood.
    """
    try:
        reading = _Reading(schema, "replace")
        version = reading.text()
        if version not in ("v1", "v2"):
            return None
        key = load_json(reading.text() if version == "v1" else reading.chunks())
        return all(field["type"] == "void" for field in key["fields"])
    except (struct.error, FormatError, ValueError, TypeError, KeyError):
        return None


def parse_variables(data: bytes, path: str) -> Variables | None:
    """The state variables in an operator's metadata; None where it has none, or an unknown shape.

    Raises:
        FormatError: It is no operator metadata.
    """
    document = load_json(data.decode("utf-8", "replace").partition("\n")[2], path)
    try:
        said = loads(document["operatorPropertiesJson"])
        expiring = {str(one["stateName"]): bool(one["ttlEnabled"]) for one in said["stateVariables"]}
        return Variables(
            str(said["timeMode"]),
            tuple(name for name, ttl in expiring.items() if not ttl),
            tuple(name for name, ttl in expiring.items() if ttl),
            tuple(
                str(one["stateName"])
                for one in said["stateVariables"]
                if one.get("stateVariableType") == "ListState"
            ),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


class _Reading:
    def __init__(self, data: bytes, errors: str = "strict") -> None:
        self._data, self._at, self._errors = data, 0, errors

    def number(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)

    def text(self) -> str:
        length = self.number(">H")
        end = self._at + length
        if end > len(self._data):
            raise ValueError("a text is cut off")
        found, self._at = self._data[self._at : end].decode("utf-8", self._errors), end
        return found

    def chunks(self) -> str:
        return "".join(self.text() for _ in range(self.number(">i")))

    def family(self) -> Columns:
        name = self.text()
        self.number(">h")  # the id of this version of the key's schema
        key = self.chunks()
        value_id = self.number(">h")
        value = self.chunks()
        self.chunks()  # how keys are encoded
        self.chunks()  # the schema of the key of a map's entries
        return Columns(name, _struct(key), _struct(value), value_id)


def _struct(text: str) -> Mapping[str, Any]:
    found = load_json(text)
    if not isinstance(found, dict) or not isinstance(found.get("fields"), list):
        raise ValueError("it holds no struct")
    _check_type(found)
    return found


def _check_type(kind: Any) -> None:
    """Make sure that a type is as Spark's `DataType.json` writes it, as deep as it goes."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        if not isinstance(field["name"], str):
            raise ValueError("a field has no name")
        if not isinstance(field.get("metadata") or {}, dict):
            raise ValueError("the metadata of a field are not an object")
        _check_type(field["type"])
    parts = {"array": ("elementType",), "map": ("keyType", "valueType")}.get(str(kind.get("type")), ())
    if kind.get("type") == "struct" and not isinstance(kind.get("fields"), list):
        raise ValueError("a struct has no fields")
    for part in parts:
        _check_type(kind[part])


def _fields(kind: Any) -> Iterator[Mapping[str, Any]]:
    for field in kind.get("fields", ()) if isinstance(kind, dict) else ():
        yield field
        yield from _fields(field["type"])


def _collections(kind: Any, path: str) -> Iterator[str]:
    if not isinstance(kind, dict):
        return
    match kind.get("type"):
        case "struct":
            for field in kind["fields"]:
                yield from _collections(field["type"], f"{path}.{field['name']}" if path else field["name"])
        case "array":
            yield f"{path} array<{_name(kind['elementType'])}>"
        case "map":
            yield f"{path} map<{_name(kind['keyType'])}, {_name(kind['valueType'])}>"


def _name(kind: Any) -> str:
    return str(kind.get("type")) if isinstance(kind, dict) else str(kind)
