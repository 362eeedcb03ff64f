"""When Spark takes stored columns for new ones: the two rules by which it compares the types of a schema.

Types are Spark's JSON of them. Of rows kept as UnsafeRow the rule is
`DataType.equalsIgnoreNameAndCompatibleNullability`: the same types in the same order, whatever they are
called. Of values kept as Avro it is Avro's schema resolution over what Spark makes of them
(`SchemaConverters.toAvroTypeWithDefaults`): columns go by name, one that is missing is null, numbers may
widen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Type = Any
"""Spark's JSON of a data type: a name, or an object."""

_COLLATIONS = "__COLLATIONS"
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)\Z")
_AVRO = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "date": "int",
    "long": "long",
    "timestamp": "long",
    "timestamp_ntz": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "void": "null",
}
_WIDENS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What Avro reads as something else (its specification, schema resolution)."""
_EXACT = {"byte": 0, "short": 1, "integer": 2, "long": 3}
"""Whole numbers by width."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is another one in a column.

    Attributes:
        column: Its path, such as `value.total`.
        what: `added`, `dropped`, `renamed`, `type`, `null`, `metadata`.
        before: What was stored; empty for nothing.
        after: What is new; empty for nothing.
        allowed: Whether Spark goes on with it.
        loss: What of the stored values is lost or read as something else; empty for nothing.
    """

    column: str
    what: str
    before: str
    after: str
    allowed: bool
    loss: str = ""


def type_text(kind: Type) -> str:
    """A type as SQL writes it."""
    if not isinstance(kind, Mapping):
        return {"integer": "int", "long": "bigint"}.get(str(kind), str(kind))
    match kind.get("type"):
        case "struct":
            fields = (f"{one['name']}: {type_text(one['type'])}" for one in kind["fields"])
            return f"struct<{', '.join(fields)}>"
        case "array":
            return f"array<{type_text(kind['elementType'])}>"
        case "map":
            return f"map<{type_text(kind['keyType'])}, {type_text(kind['valueType'])}>"
        case _:
            return str(kind.get("class") or kind.get("pyClass") or kind.get("type"))


def changes_by_place(old: Type, new: Type, path: str) -> Iterator[Change]:
    """What differs where columns are taken by their place: rows kept as UnsafeRow, and all keys.

    Args:
        old: The struct that is stored.
        new: The one that a query wants.
        path: How the struct is called.
    """
    stored, wanted = old["fields"], new["fields"]
    if len(stored) != len(wanted):
        yield from _counted(stored, wanted, path)
        return
    for before, after in zip(stored, wanted, strict=True):
        column = f"{path}.{after['name']}"
        if not _same_place(before["type"], after["type"]) or _collation(before) != _collation(after):
            yield Change(column, "type", _told(before), _told(after), False)
        elif after["nullable"] and not before["nullable"]:
            yield Change(column, "null", "never null", "may be null", False)
        elif before["name"] != after["name"]:
            yield Change(
                column, "renamed", before["name"], after["name"], True, _taken_by_place(before, after)
            )
        elif before != after:
            what = "null" if before["nullable"] != after["nullable"] else "metadata"
            yield Change(column, what, "may be null" if what == "null" else "", "", True)


def _counted(stored: list[Any], wanted: list[Any], path: str) -> Iterator[Change]:
    """Another number of columns, which Spark never takes."""
    before, after = ({one["name"]: one for one in fields} for fields in (stored, wanted))
    for name in before.keys() - after.keys():
        yield Change(f"{path}.{name}", "dropped", _told(before[name]), "", False)
    for name in after.keys() - before.keys():
        yield Change(f"{path}.{name}", "added", "", _told(after[name]), False)
    if before.keys() == after.keys():
        yield Change(path, "type", f"{len(stored)} columns", f"{len(wanted)} columns", False)


def _same_place(old: Type, new: Type) -> bool:
    """Whether Spark takes a stored value for one of the new type, names aside."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return bool(old == new)
    kind = old.get("type")
    if kind != new.get("type"):
        return False
    if kind == "array":
        weaker = new["containsNull"] and not old["containsNull"]
        return not weaker and _same_place(old["elementType"], new["elementType"])
    if kind == "map":
        weaker = new["valueContainsNull"] and not old["valueContainsNull"]
        parts = ("keyType", "valueType")
        return not weaker and all(_same_place(old[part], new[part]) for part in parts)
    if kind == "struct":
        return all(change.allowed for change in changes_by_place(old, new, ""))
    return bool(old == new)


def _taken_by_place(before: Any, after: Any) -> str:
    return f"Spark goes by the place of a column: what {before['name']} held is now called {after['name']}"


def changes_by_name(old: Type, new: Type, path: str) -> Iterator[Change]:
    """What differs where columns are taken by name: values of a transformWithState kept as Avro."""
    stored, wanted = ({one["name"]: one for one in kind["fields"]} for kind in (old, new))
    for name, field in stored.items():
        if name not in wanted:
            lost = "its values are gone when a row is next written; under another name it starts as null"
            yield Change(f"{path}.{name}", "dropped", _told(field), "", True, lost)
    for name, field in wanted.items():
        column = f"{path}.{name}"
        if name not in stored:
            allowed = _avro(field["type"]) is not None and not _collation(field)
            yield Change(column, "added", "", _told(field), allowed, "it is null in every row that is stored")
            continue
        before = stored[name]
        if before == field:
            continue
        if before["type"] == field["type"] and _collation(before) == _collation(field):
            yield Change(column, "metadata", "", "", True)
            continue
        plain = _collation(before) is None and _collation(field) is None
        allowed = plain and _readable(before["type"], field["type"])
        yield Change(column, "type", _told(before), _told(field), allowed, _misread(before, field))
    places = [name for name in stored if name in wanted] != [name for name in wanted if name in stored]
    if places:
        yield Change(path, "metadata", "", "", True)


def _readable(old: Type, new: Type) -> bool:
    """Whether Avro reads a stored value as the new type; every column may be null there."""
    before, after = _avro(old), _avro(new)
    if before is None or after is None:
        return False
    if before != after:
        return before == "null" or after in _WIDENS.get(before, ())
    match before:
        case "array":
            return _readable(old["elementType"], new["elementType"])
        case "map":
            return _readable(old["valueType"], new["valueType"])
        case "record":
            return all(change.allowed for change in changes_by_name(old, new, ""))
    return True


def _avro(kind: Type) -> str | None:
    """The Avro type that Spark makes of a type; None where it has none."""
    if not isinstance(kind, Mapping):
        name = str(kind)
        decimal = _DECIMAL.match(name)
        if decimal is not None:
            return f"fixed({_decimal_bytes(int(decimal[1]))})"
        return _AVRO.get(name)
    match kind.get("type"):
        case "struct":
            known = all(_avro(one["type"]) is not None for one in kind["fields"])
            return "record" if known else None
        case "array":
            return None if _avro(kind["elementType"]) is None else "array"
        case "map":
            known = kind["keyType"] == "string" and _avro(kind["valueType"]) is not None
            return "map" if known else None
    return None


def _decimal_bytes(precision: int) -> int:
    """The bytes that hold every decimal of so many digits and its sign (Decimal.minBytesForPrecision)."""
    largest: int = 10**precision - 1
    return largest.bit_length() // 8 + 1


def _misread(before: Any, after: Any) -> str:
    """What becomes of stored values that Avro reads and that do not mean the same."""
    old, new = before["type"], after["type"]
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        return ""
    if old in _EXACT and new in _EXACT:
        return "" if _EXACT[old] < _EXACT[new] else "values that do not fit are cut off"
    if _avro(old) == _avro(new):
        return "its bytes are taken for the new type as they are: the values mean something else"
    if (old in ("integer", "long") and _avro(new) == "float") or (old, new) == ("long", "double"):
        return "large numbers are rounded"
    return ""


def _told(field: Any) -> str:
    collation = _collation(field)
    return type_text(field["type"]) + (f" collate {collation}" if collation else "")


def _collation(field: Any) -> str | None:
    """The collation of a column's text; None for the ordinary one."""
    found = (field.get("metadata") or {}).get(_COLLATIONS)
    return None if not found else ", ".join(str(one) for _, one in sorted(found.items()))
