"""Whether a query that keeps one schema goes on from state of another: by Spark's own rules, without Spark.

Spark decides when the query is planned, after it was stopped: `IncrementalExecution` compares operators with
their metadata, `TransformWithStateVariableUtils` the state variables, and `StateSchemaCompatibilityChecker`
each column family of each store (read in Spark 4.3.0). What is there has to be what the new query wants;
settings of the offset log stay those of the old one, whatever the new one's session says
(`OffsetSeqMetadata.setSessionConf`).

A pure function of two schemas. Held against Spark itself by
tests/streambank/checkpoint/schema/test_compatibility_spark.py.

Spark compares the types of stored columns and new ones by two rules. Types are Spark's JSON of them. Of rows
kept as UnsafeRow the rule is `DataType.equalsIgnoreNameAndCompatibleNullability`: the same types in the same
order, whatever they are called. Of values kept as Avro it is Avro's schema resolution over what Spark makes
of them (`SchemaConverters.toAvroTypeWithDefaults`): columns go by name, one that is missing is null, numbers
may widen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from streambank.checkpoint.schema.query import OperatorSchema, QuerySchema, StoreSchema
from streambank.checkpoint.schema.store import Columns
from streambank.core.shape import JsonName, JsonObject

Verdict = Literal["same", "compatible", "unknown", "incompatible"]
_ORDER: tuple[Verdict, ...] = ("same", "compatible", "unknown", "incompatible")
"""From the best to the worst."""

PREFIX = "spark.sql.streaming."
ENCODING = f"{PREFIX}stateStore.encodingFormat"
MAX_EVOLUTIONS = 16
"""`spark.sql.streaming.stateStore.valueStateSchemaEvolutionThreshold`."""
KEPT_SETTINGS = (
    f"{PREFIX}stateStore.providerClass",
    ENCODING,
    f"{PREFIX}aggregation.stateFormatVersion",
    f"{PREFIX}flatMapGroupsWithState.stateFormatVersion",
    f"{PREFIX}join.stateFormatVersion",
    f"{PREFIX}stateStore.rowChecksum.enabled",
    "spark.sql.shuffle.partitions",
)
"""Settings of the offset log that say how state is kept."""
_FORMATS = {
    "stateStoreSave": KEPT_SETTINGS[2],
    "flatMapGroupsWithState": KEPT_SETTINGS[3],
    "applyInPandasWithState": KEPT_SETTINGS[3],
    "symmetricHashJoin": KEPT_SETTINGS[4],
}
_DEFAULTS = {
    KEPT_SETTINGS[0]: "HDFSBackedStateStoreProvider",
    ENCODING: "unsaferow",
    KEPT_SETTINGS[5]: "false",
}
"""What an older Spark did before there was the setting."""
_VALUE_NOT_CHECKED = "dedupe"
"""`StreamingDeduplicateExec` keeps no value, and lets none be compared."""
_INTERNAL = "$"

NEW_STATE = (
    "Start it with a new checkpoint. To keep what is known, export the state and give it to a "
    "transformWithState as initial state (docs/howto/migrate-state.md)."
)
DROPPED_VARIABLE = "Keep the variable if it is still needed."


@dataclass(frozen=True, slots=True)
class Difference(JsonObject):
    """One thing that is another one.

    Attributes:
        column: The column, such as `value.total`; None for all of it.
        loses: Spark goes on, and what was stored is lost or taken for something else.
    """

    operator: int
    store: str | None
    family: str | None
    column: str | None
    verdict: Verdict
    why: str
    do: str = ""
    loses: bool = False


@dataclass(frozen=True, slots=True)
class SettingChange(JsonObject):
    """A setting that the old state keeps, whatever the new query's session says."""

    name: Annotated[str, JsonName("setting")]
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class SchemaComparison:
    """What Spark would say; of settings that differ, the old ones stay."""

    operators: tuple[tuple[int, str | None, str | None], ...]
    differences: tuple[Difference, ...]
    settings: tuple[SettingChange, ...]

    @property
    def verdict(self) -> Verdict:
        return _worst(self.differences)

    @property
    def loses(self) -> bool:
        return any(difference.loses for difference in self.differences)

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "loses": self.loses,
            "settings": [setting.to_dict() for setting in self.settings],
            "operators": [
                {
                    "operator": number,
                    "before": before,
                    "after": after,
                    "verdict": _worst(each for each in self.differences if each.operator == number),
                    "differences": [
                        difference.to_dict()
                        for difference in self.differences
                        if difference.operator == number
                    ],
                }
                for number, before, after in self.operators
            ],
        }


def _worst(differences: Any) -> Verdict:
    return max((difference.verdict for difference in differences), key=_ORDER.index, default="same")


def compare_schemas(before: QuerySchema, after: QuerySchema) -> SchemaComparison:
    """What Spark says when a query that keeps `after` starts from state that is `before`."""
    old, new = ({operator.operator: operator for operator in each.operators} for each in (before, after))
    numbers = sorted(old.keys() | new.keys())
    found = [
        difference
        for number in numbers
        for difference in _operator(number, old.get(number), new.get(number), before, after)
    ]
    settings = (SettingChange(name, _setting(before, name), _setting(after, name)) for name in KEPT_SETTINGS)
    return SchemaComparison(
        tuple((number, _name(old.get(number)), _name(new.get(number))) for number in numbers),
        tuple(found),
        tuple(setting for setting in settings if setting.before != setting.after),
    )


def _name(operator: OperatorSchema | None) -> str | None:
    return None if operator is None else operator.name


def _setting(schema: QuerySchema, name: str) -> str | None:
    found = schema.conf.get(name, _DEFAULTS.get(name))
    return None if found is None else found.rpartition(".")[2]


def _operator(
    number: int,
    old: OperatorSchema | None,
    new: OperatorSchema | None,
    before: QuerySchema,
    after: QuerySchema,
) -> Iterator[Difference]:
    def whole(verdict: Verdict, why: str, do: str = NEW_STATE) -> Difference:
        return Difference(number, None, None, None, verdict, why, do)

    if old is None or new is None:
        there, lacks = ("the new query", "the state") if old is None else ("the state", "the new query")
        kind = (new or old or _NOTHING).name or "an operator"
        yield whole(
            "incompatible", f"{there} has {kind} as operator {number}, and {lacks} has no such operator"
        )
        return
    if old.name is not None and new.name is not None and old.name != new.name:
        yield whole("incompatible", f"the state is of {old.name}, and the new query has {new.name} there")
        return
    kept = _FORMATS.get(old.name or "")
    if kept is not None and _setting(before, kept) != _setting(after, kept):
        yield whole(
            "unknown",
            f"the state has {kept} {_setting(before, kept)}, which stays, and the other one was made with "
            f"{_setting(after, kept)}: their columns cannot be compared",
            f"Make the other one with {kept}={_setting(before, kept)}, and compare again.",
        )
        return
    for name, value in old.properties.items():
        if new.properties.get(name, value) != value:
            why = (
                f"its {name} was {value} and would be {new.properties[name]}, which Spark does not let change"
            )
            yield whole("incompatible", why)
    for variable, kind in old.variables.items():
        wanted = new.variables.get(variable, kind)
        if wanted != kind:
            yield Difference(
                number, None, variable, None, "incompatible",
                f"it was a {kind} and would be a {wanted}", "Give the new one another name.",
            )  # fmt: skip
    by_name = _setting(before, ENCODING) == "avro" and bool(old.variables or new.variables)
    yield from _stores(old, new, by_name)


_NOTHING = OperatorSchema(-1, None, ())


def _stores(old: OperatorSchema, new: OperatorSchema, by_name: bool) -> Iterator[Difference]:
    stored, wanted = ({store.store: store for store in each.stores} for each in (old, new))
    for name in sorted(stored.keys() | wanted.keys()):
        if name not in stored or name not in wanted:
            where = "the new query" if name in wanted else "the state"
            why = f"only {where} has the store {name}"
            yield Difference(old.operator, name, None, None, "incompatible", why, NEW_STATE)
        elif not stored[name].versions or not wanted[name].versions:
            where = "the state" if not stored[name].versions else "the other one"
            why = f"{where} has no schema file of it, so Spark compares nothing: it writes one at the start"
            yield Difference(
                old.operator, name, None, None, "unknown", why, "Compare a savepoint that has one."
            )
        else:
            yield from _families(old, new, stored[name], wanted[name], by_name)


def _families(
    old: OperatorSchema, new: OperatorSchema, stored: StoreSchema, wanted: StoreSchema, by_name: bool
) -> Iterator[Difference]:
    ours = (old.operator, stored.store)
    kinds_differ = {name for name, kind in old.variables.items() if new.variables.get(name, kind) != kind}
    for family in sorted(stored.newest.keys() | wanted.newest.keys()):
        named = None if family == "default" else family
        if family.startswith(_INTERNAL) or family in kinds_differ:
            continue  # Spark's own, which follow what they belong to
        if family not in wanted.newest:
            why = "the new query does not have it: what it holds is no longer read, and stays in the files"
            yield Difference(*ours, named, None, "compatible", why, DROPPED_VARIABLE, True)
        elif family not in stored.newest:
            yield Difference(*ours, named, None, "compatible", "it is new, and empty when the query goes on")
        else:
            yield from _columns(old, stored.history(family), wanted.newest[family], (*ours, named), by_name)


def _columns(
    old: OperatorSchema,
    history: list[Columns],
    wanted: Columns,
    place: tuple[int, str, str | None],
    by_name: bool,
) -> Iterator[Difference]:
    newest = history[-1]
    for change in changes_by_place(newest.key, wanted.key, "key"):
        yield _difference(place, change, "Spark finds rows by the bytes of their key")
    if old.name == _VALUE_NOT_CHECKED:
        return
    if not by_name:
        reason = "values are kept as UnsafeRow, which Spark takes by place and type"
        for change in changes_by_place(newest.value, wanted.value, "value"):
            yield _difference(place, change, reason)
        return
    if newest.value == wanted.value:
        return
    told = {change.column: change for change in changes_by_name(newest.value, wanted.value, "value")}
    for version in history[:-1]:
        changes = changes_by_name(version.value, wanted.value, "value")
        told |= {change.column: change for change in changes if not change.allowed}
    for change in told.values():
        yield _difference(place, change, "of Avro, Spark takes what Avro can read as the new type")
    if newest.value_id + 1 >= MAX_EVOLUTIONS:
        setting = f"{PREFIX}stateStore.valueStateSchemaEvolutionThreshold"
        why = f"it has evolved {newest.value_id} times, and Spark stops at {MAX_EVOLUTIONS}"
        yield Difference(*place, None, "incompatible", why, f"Set {setting} higher.")


def _difference(place: tuple[int, str, str | None], change: ColumnChange, reason: str) -> Difference:
    why = _WORDS[change.what].format(before=change.before, after=change.after)
    if not change.allowed:
        return Difference(*place, change.column, "incompatible", f"{why}; {reason}", NEW_STATE)
    if change.loss:
        lost, told = change.what in ("dropped", "type"), f"{why}: {change.loss}"
        return Difference(*place, change.column, "compatible", told, _DO[change.what], lost)
    return Difference(*place, change.column, "compatible", why)


_WORDS: Mapping[str, str] = {
    "added": "added as {after}",
    "dropped": "dropped, it was {before}",
    "renamed": "called {after}, it was {before}",
    "type": "{after}, it was {before}",
    "null": "{after}, it was {before}",
    "metadata": "only its metadata or its place differs",
}
_DO: Mapping[str, str] = {
    "added": "Let the query take null for it.",
    "dropped": "Keep the column if it is still needed.",
    "renamed": "Make sure that the same thing is meant.",
    "type": "Make sure that both mean the same, or add a column of the new type beside the old one.",
}


Type = Any
"""Spark's JSON of a data type: a name, or an object."""

_COLLATIONS = "__COLLATIONS"
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(-?\d{1,2})\)\Z")
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
class ColumnChange:
    """What is another one in a column.

    Attributes:
        what: `added`, `dropped`, `renamed`, `type`, `null`, `metadata`.
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
            fields = (f"{field['name']}: {type_text(field['type'])}" for field in kind["fields"])
            return f"struct<{', '.join(fields)}>"
        case "array":
            return f"array<{type_text(kind['elementType'])}>"
        case "map":
            return f"map<{type_text(kind['keyType'])}, {type_text(kind['valueType'])}>"
        case _:
            return str(kind.get("class") or kind.get("pyClass") or kind.get("type"))


def changes_by_place(old: Type, new: Type, path: str) -> Iterator[ColumnChange]:
    """What differs where columns are taken by their place: rows kept as UnsafeRow, and all keys."""
    stored, wanted = old["fields"], new["fields"]
    if len(stored) != len(wanted):
        yield from _counted(stored, wanted, path)
        return
    for before, after in zip(stored, wanted, strict=True):
        column = f"{path}.{after['name']}"
        if not _same_place(before["type"], after["type"]) or _collation(before) != _collation(after):
            yield ColumnChange(column, "type", _told(before), _told(after), False)
        elif after["nullable"] and not before["nullable"]:
            yield ColumnChange(column, "null", "never null", "may be null", False)
        elif before["name"] != after["name"]:
            yield ColumnChange(
                column, "renamed", before["name"], after["name"], True, _taken_by_place(before, after)
            )
        elif before != after:
            what = "null" if before["nullable"] != after["nullable"] else "metadata"
            yield ColumnChange(column, what, "may be null" if what == "null" else "", "", True)


def _counted(stored: list[Any], wanted: list[Any], path: str) -> Iterator[ColumnChange]:
    before, after = ({field["name"]: field for field in fields} for fields in (stored, wanted))
    for name in before.keys() - after.keys():
        yield ColumnChange(f"{path}.{name}", "dropped", _told(before[name]), "", False)
    for name in after.keys() - before.keys():
        yield ColumnChange(f"{path}.{name}", "added", "", _told(after[name]), False)
    if before.keys() == after.keys():
        yield ColumnChange(path, "type", f"{len(stored)} columns", f"{len(wanted)} columns", False)


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


def changes_by_name(old: Type, new: Type, path: str) -> Iterator[ColumnChange]:
    """What differs where columns are taken by name: values of a transformWithState kept as Avro."""
    stored, wanted = ({field["name"]: field for field in kind["fields"]} for kind in (old, new))
    for name, field in stored.items():
        if name not in wanted:
            lost = "its values are gone when a row is next written; under another name it starts as null"
            yield ColumnChange(f"{path}.{name}", "dropped", _told(field), "", True, lost)
    for name, field in wanted.items():
        column = f"{path}.{name}"
        if name not in stored:
            allowed = _avro(field["type"]) is not None and not _collation(field)
            yield ColumnChange(
                column, "added", "", _told(field), allowed, "it is null in every row that is stored"
            )
            continue
        before = stored[name]
        if before == field:
            continue
        if before["type"] == field["type"] and _collation(before) == _collation(field):
            yield ColumnChange(column, "metadata", "", "", True)
            continue
        plain = _collation(before) is None and _collation(field) is None
        allowed = plain and _readable(before["type"], field["type"])
        yield ColumnChange(column, "type", _told(before), _told(field), allowed, _misread(before, field))
    places = [name for name in stored if name in wanted] != [name for name in wanted if name in stored]
    if places:
        yield ColumnChange(path, "metadata", "", "", True)


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
    if not isinstance(kind, Mapping):
        name = str(kind)
        decimal = _DECIMAL.match(name)
        if decimal is not None:
            return f"fixed({_decimal_bytes(int(decimal[1]))})"
        return _AVRO.get(name)
    match kind.get("type"):
        case "struct":
            known = all(_avro(field["type"]) is not None for field in kind["fields"])
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
    found = (field.get("metadata") or {}).get(_COLLATIONS)
    return None if not found else ", ".join(str(one) for _, one in sorted(found.items()))
