"""A table as the policy that it declares: a frozen dataclass, each field read by its type.

| type of the field | in the table |
| --- | --- |
| `str` | a text |
| `bool` | true or false |
| `int` | a whole number above 0 |
| `float`, called `x_s` | a duration `x` |
| `Literal[...]` | one of these texts |
| `tuple[str, ...]` | a list of texts |
| `Mapping[str, str]` | a table of settings |
| `Annotated[..., read]` | what `read(fields, name)` gives |

A field that the table lacks has its default; it must be there where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from streambank.declaration.fields import Fields
from streambank.repository.coverage import parse_share

T = TypeVar("T")
Read = Callable[[Fields, str], Any]


def _share(fields: Fields, name: str) -> str | None:
    """Reads how much of the bytes a sampled verification reads and compares, such as `10%`."""
    text = fields.text(name)
    fields.checked(name, lambda: parse_share(text or "100%"))
    return text


Schedule = Annotated[str, Fields.schedule]
Location = Annotated[str, Fields.location]
Locations = Annotated[tuple[str, ...], Fields.locations]
File = Annotated[str, Fields.file]
Interpreter = Annotated[str, Fields.interpreter]
TimeZone = Annotated[str, Fields.time_zone]
Share = Annotated[str, _share]
UNDECLARED = object()
"""Of a field that no table has."""


def at_least(minimum: int) -> Read:
    """Reads a whole number."""
    return lambda fields, name: fields.whole(name, minimum=minimum)


def one_of(*choices: str) -> Read:
    """Reads one of some texts."""
    return lambda fields, name: fields.choice(name, choices)


def read_policy(table: Fields, kind: type[T], /, **given: Any) -> T:
    """The policy that a table declares.

    Args:
        given: Fields that are known already.

    Raises:
        InputError: A field is not known, or cannot be right (code `bad-declaration`).
    """
    wanted: Any = kind
    found = dict(given)
    for name, declared, required, read in _shape(wanted):
        if name in given:
            continue
        value = read(table, declared)
        if required:
            value = table.required(declared, value)
        if value is not None:
            found[name] = value
    table.done()
    return kind(**found)


@cache
def _shape(kind: type[Any]) -> tuple[tuple[str, str, bool, Read], ...]:
    """Of each field its name, what a table calls it, whether it must be there, and what reads it."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (
            field.name,
            field.name.removesuffix("_s"),
            field.default is MISSING and field.default_factory is MISSING,
            read,
        )
        for field in fields(kind)
        if (read := _reader(hints[field.name])) is not None
    )


def _reader(kind: Any) -> Read | None:
    """What reads a field of a type; None for one that is only given."""
    inside = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (one for one in inside if one is not type(None))
        inside = get_args(kind)
    if get_origin(kind) is Annotated:
        return None if inside[1] is UNDECLARED else inside[1]
    if get_origin(kind) is Literal:
        return one_of(*inside)
    readers: Mapping[Any, Read] = {
        str: Fields.text,
        bool: Fields.boolean,
        int: at_least(1),
        float: Fields.duration_s,
        tuple: Fields.texts,
        Mapping: Fields.settings,
    }
    return readers.get(get_origin(kind) or kind)
