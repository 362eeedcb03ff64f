"""Frozen dataclasses as JSON, and JSON as frozen dataclasses, by the types of their fields.

| type of a field | JSON |
| --- | --- |
| `str`, `int`, `float`, `bool`, `Literal[...]`, `X | None`, `Any`, a `StrEnum` | the same |
| `datetime` | ISO-8601 in UTC with `Z` and milliseconds |
| `tuple[X, ...]`, `tuple[X, Y]`, `list[X]`, `Sequence[X]`, a `NamedTuple` | a list |
| `Mapping[str, X]`, `dict[str, X]` | an object |
| a dataclass | an object of its fields; of what has `to_dict` what that gives |

A field says by `Annotated` where its JSON differs: `Annotated[float, MILLIS]`,
`Annotated[int, JsonName("to")]`, `Annotated[Mapping[str, str], OMIT_EMPTY]`. What is read may lack fields
that have a default, and have fields of a later version, which are ignored.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from streambank.core.errors import FormatError, StreambankError
from streambank.core.units import from_json_time, to_json_time

T = TypeVar("T")
HINT = "It was cut off or edited. Restore it to the form that docs/formats/job.md describes."


@dataclass(frozen=True, slots=True)
class JsonName:
    """What a field is called in JSON, where Python has another name for it."""

    text: str


@dataclass(frozen=True, slots=True)
class Digits:
    """How many digits a number, or each in a collection, has after the point when it is written."""

    digits: int


@dataclass(frozen=True, slots=True)
class Between:
    """The bounds of a whole number that is read."""

    least: int
    most: float = math.inf


TENTHS = Digits(1)
MILLIS = Digits(3)
OMIT_EMPTY = object()
"""Of a field that is not written where it is empty or None."""
HIDDEN = object()
"""Of a field that is never written."""


class JsonObject:
    """A dataclass that is written as JSON by its fields."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        return encode(self)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: Any
    key: str
    required: bool
    digits: int | None
    omit_empty: bool
    hidden: bool


@cache
def shape_of(kind: Any) -> tuple[_Field, ...]:
    """The fields of a dataclass."""
    # On Python 3.10 the marker of `dataclasses.KW_ONLY` is no type.
    kinds = get_type_hints(kind, localns={"KW_ONLY": object}, include_extras=True)
    found = []
    for one in fields(kind):
        marks = getattr(kinds[one.name], "__metadata__", ())
        key = next((mark.text for mark in marks if isinstance(mark, JsonName)), one.name)
        digits = next((mark.digits for mark in marks if isinstance(mark, Digits)), None)
        required = one.default is MISSING and one.default_factory is MISSING
        found.append(
            _Field(one.name, kinds[one.name], key, required, digits, OMIT_EMPTY in marks, HIDDEN in marks)
        )
    return tuple(found)


def encode(value: Any) -> dict[str, Any]:
    """A dataclass as JSON, by its fields."""
    kind: Any = type(value)
    found = {}
    for one in shape_of(kind):
        held = getattr(value, one.name)
        if not one.hidden and (held or not one.omit_empty):
            found[one.key] = _encoded(held, one.digits)
    return found


def _encoded(value: Any, digits: int | None) -> Any:
    if isinstance(value, float):
        return value if digits is None else round(value, digits)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, datetime):
        return to_json_time(value)
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return encode(value)
    if isinstance(value, Mapping):
        return {key: _encoded(one, digits) for key, one in value.items()}
    return [_encoded(one, digits) for one in value]


def decode(
    kind: type[T],
    data: object,
    what: str,
    *,
    at: str = "",
    hint: str = HINT,
    refuse: Callable[[str, str], StreambankError] | None = None,
) -> T:
    """What JSON says, as a dataclass or another type of the table above.

    Args:
        what: What it is read from, such as `record s3://...`.
        at: The field of that which it is.
        hint: What to do where it cannot be read.
        refuse: Makes another error, of `what` and what is wrong with it.

    Raises:
        FormatError: A field is missing, or of another kind (code `damaged-record`); the message names it.
    """
    wanted: Any = kind
    try:
        decoded: T = _reader(wanted)(data, at)
    except _Misfit as error:
        if refuse is not None:
            raise refuse(what, str(error)) from error
        raise FormatError(
            f"The {what} cannot be read: {error}.",
            code="damaged-record",
            hint=hint,
        ) from error
    return decoded


class _Misfit(ValueError):
    """JSON that is not of the type of a field."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path.lstrip('.') or 'it'} {problem}")


@cache
def _reader(kind: Any) -> Callable[[Any, str], Any]:
    """What reads JSON of a type, and names where that is if it cannot; each type is looked at once."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = next((mark for mark in inside[1:] if isinstance(mark, Between)), None)
        return _reader(inside[0]) if bounds is None else partial(_read_between, _reader(inside[0]), bounds)
    if origin in (Union, UnionType):
        (other,) = (one for one in inside if one is not type(None))
        return partial(_read_optional, _reader(other))
    if origin is Literal:
        return partial(_read_one_of, inside)
    if isinstance(kind, type) and issubclass(kind, tuple) and origin is None:
        kinds = get_type_hints(kind, include_extras=True).values()
        return partial(_read_each, kind._make, tuple(map(_reader, kinds)))  # type: ignore[attr-defined]
    if origin is tuple and inside[1:] != (...,):
        return partial(_read_each, tuple, tuple(map(_reader, inside)))
    if origin in (tuple, list, Sequence):
        return partial(_read_list, list if origin is list else tuple, _reader(inside[0]))
    if origin in (dict, Mapping):
        return partial(_read_object, None if inside[1] is Any else _reader(inside[1]))
    return partial(_read_fields if is_dataclass(kind) else _read_plain, kind)


def _read_between(read: Callable[[Any, str], Any], bounds: Between, data: Any, path: str) -> Any:
    found = read(data, path)
    if not bounds.least <= found <= bounds.most:
        raise _Misfit(path, f"is {found}, and must be from {bounds.least} to {bounds.most}")
    return found


def _read_optional(read: Callable[[Any, str], Any], data: Any, path: str) -> Any:
    return None if data is None else read(data, path)


def _read_one_of(values: tuple[Any, ...], data: Any, path: str) -> Any:
    if data not in values:
        raise _Misfit(path, f"is none of {', '.join(map(str, values))}")
    return data


def _read_each(
    make: Callable[[Any], Any], reads: Sequence[Callable[[Any, str], Any]], data: Any, path: str
) -> Any:
    if len(_expect(data, (list, tuple), path)) != len(reads):
        raise _Misfit(path, f"must have {len(reads)} values")
    return make(read(one, f"{path}[{at}]") for at, (read, one) in enumerate(zip(reads, data, strict=True)))


def _read_list(make: Callable[[Any], Any], read: Callable[[Any, str], Any], data: Any, path: str) -> Any:
    return make([read(one, f"{path}[{at}]") for at, one in enumerate(_expect(data, (list, tuple), path))])


def _read_object(read: Callable[[Any, str], Any] | None, data: Any, path: str) -> Any:
    found = _expect(data, (dict, Mapping), path)
    return dict(found) if read is None else {key: read(one, f"{path}.{key}") for key, one in found.items()}


@cache
def _readers(kind: Any) -> tuple[tuple[str, str, bool, Callable[[Any, str], Any]], ...]:
    return tuple((one.name, one.key, one.required, _reader(one.kind)) for one in shape_of(kind))


def _read_fields(kind: Any, data: Any, path: str) -> Any:
    _expect(data, (dict, Mapping), path)
    values = {}
    for name, key, required, read in _readers(kind):
        if key in data:
            values[name] = read(data[key], f"{path}.{key}")
        elif required:
            raise _Misfit(f"{path}.{key}", "is missing")
    return kind(**values)


def _read_plain(kind: Any, data: Any, path: str) -> Any:
    if kind in (str, int, bool):
        return data if type(data) is kind else _expect(data, kind, path)
    if kind is datetime:
        text = _expect(data, str, path)
        try:
            return from_json_time(text)
        except ValueError as error:
            raise _Misfit(path, "is not a time with its time zone") from error
    if kind is float:
        found = _expect(data, (int, float), path)
        if not -sys.float_info.max <= found <= sys.float_info.max:
            raise _Misfit(path, "is not a finite number")
        return float(found)
    if isinstance(kind, type) and issubclass(kind, Enum):
        if data not in (members := [one.value for one in kind]):
            raise _Misfit(path, f"is none of {', '.join(members)}")
        return kind(data)
    return data  # Any


_KINDS: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    (int, float): "a number",
    bool: "true or false",
    (list, tuple): "a list",
    (dict, Mapping): "an object",  # of what JSON is read as this can be told faster
}


def _expect(data: Any, kind: Any, path: str) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise _Misfit(path, f"is not {_KINDS[kind]}")
    return data
