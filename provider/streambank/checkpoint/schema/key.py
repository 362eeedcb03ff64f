"""A key of state as a person names it: some of its fields with their values, held against its schema.

A schema has the form of Spark's `DataType.json`, which both the state's own files and Spark's reader give, so
a key that does not fit is refused before Spark is started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streambank.checkpoint.schema.compatibility import type_text
from streambank.core.errors import InputError
from streambank.core.json_text import loads

_WHOLE = ("byte", "short", "integer", "long")
_EXAMPLES = {
    **dict.fromkeys(_WHOLE, 17),
    **dict.fromkeys(("float", "double"), 1.5),
    "boolean": True,
    "date": "2026-11-28",
    "timestamp": "2026-11-28T12:00:00Z",
    "timestamp_ntz": "2026-11-28T12:00:00",
    "string": "c-17",
}


def named_fields(text: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """What a text asks of a key: field -> value, nested for structs; other fields may be anything.

    Args:
        text: A JSON object of some of the fields, or the only field as text.

    Raises:
        InputError: It does not fit the key (code `bad-key-text`).
    """
    fields = _fields(key)
    if not fields:
        raise bad_key(text, key, "this state has no key")
    try:
        wanted = loads(text)
    except ValueError:
        wanted = text
    if not isinstance(wanted, dict):
        if len(fields) > 1:
            raise bad_key(text, key, f"the key has the fields {', '.join(fields)}")
        # As it was given: a text that looks like a number is still a text.
        wanted = {next(iter(fields)): wanted if isinstance(wanted, (list, str, type(None))) else text}
    _check(text, key, fields, wanted)
    return wanted


def _check(text: str, key: Mapping[str, Any], fields: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if not wanted:
        raise bad_key(text, key, "it names no field")
    for name, given in wanted.items():
        if name not in fields:
            raise bad_key(text, key, f"it has no field {name}, but {', '.join(fields)}")
        kind = fields[name]
        if isinstance(kind, Mapping) and kind.get("type") == "struct" and isinstance(given, dict):
            _check(text, key, _fields(kind), given)
        elif isinstance(given, (dict, list)):
            raise bad_key(text, key, f"the field {name} needs a plain value")
        elif given is not None and isinstance(kind, Mapping) and kind.get("type") != "udt":
            raise bad_key(text, key, f"the field {name} has no plain value")
        elif given is not None and kind in _WHOLE and not _is_whole(given):
            raise bad_key(text, key, f"{plain(given)} is not a valid {kind}")


def _is_whole(given: Any) -> bool:
    """Whether Spark's cast to a whole number may give one: it takes `17`, ` 17 ` and `17.9`."""
    try:
        float(given)
    except (TypeError, ValueError):
        return False
    return not isinstance(given, bool)


def plain(given: Any) -> str:
    """A plain value as text, as Spark casts it."""
    return json.dumps(given) if isinstance(given, bool) else str(given)


def bad_key(text: str, key: Mapping[str, Any], why: str) -> InputError:
    """That a text does not name a key of some state (code `bad-key-text`)."""
    example = _example(key)
    way = f"give some of its fields as a JSON object, such as --key '{example}'" if example else "it has none"
    return InputError(
        f"{text} does not name a key of this state: {why}.",
        code="bad-key-text",
        hint=f"The key is {type_text(key)}: {way}.",
    )


def _example(key: Mapping[str, Any]) -> str:
    fields = _fields(key)
    name = next((name for name, kind in fields.items() if isinstance(kind, str)), next(iter(fields), None))
    return "" if name is None else json.dumps({name: _value(fields[name])}, ensure_ascii=False)


def _value(kind: Any) -> Any:
    if isinstance(kind, Mapping):
        inner = _fields(kind)
        return {name: _value(each) for name, each in inner.items()} or None
    return 1.5 if kind.startswith("decimal") else _EXAMPLES.get(kind, "...")


def _fields(kind: Mapping[str, Any]) -> dict[str, Any]:
    return {str(field["name"]): field["type"] for field in kind.get("fields", ())}
