"""Options: what a person may ask of a verb, each declared once, as a field of a dataclass (verb_options.py).

What is declared is its name, type, default and help. The command line, forms, operators and the pages of
reference are made of that. A field whose name ends in `_s` holds seconds: people know it without these two
letters, and write a duration such as `10m`.
"""

from __future__ import annotations

import math
import re
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from streambank.core.errors import InputError, check_choice

Template = Annotated[Any, "template"]
"""What an argument may be in place of its type: what only a run knows, text with Jinja or a task's output."""
_HINT = "If it is a template, the task's rendered fields show its value."
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


@dataclass(frozen=True)
class Option:
    """What people are told of a field, beside its name, type and default: `Annotated[bool, Option("...")]`.

    Attributes:
        title: Its title in a form; without one, forms do not ask for it.
        parse: How the command line reads its text (of a mapping its texts), where the type does not say it.
        section: Under which heading a form has it; the first one when left out.
        usual: What None stands for.
        positional: Whether it is an argument of the command line, and no option.
        off: The flag of the command line that says no, of a switch that may also be left alone.
        needs_unit: Whether a text that is a bare number is refused as a length of time. One that decides what
            is removed is not guessed: 90 may have meant days.
    """

    help: str
    title: str = ""
    flag: str = ""
    metavar: str | None = None
    least: int | None = None
    parse: Callable[[str], Any] | None = None
    choices: Mapping[str, str] | None = None
    section: str = ""
    usual: str = ""
    positional: bool = False
    off: str = ""
    env: str = ""
    needs_unit: bool = False


@dataclass(frozen=True)
class OptionField:
    """A field, with what is said of it; without a default it has to be given."""

    name: str
    kind: Any
    optional: bool
    default: Callable[[], Any] | None
    option: Option | None
    is_template: bool = False

    @classmethod
    def of(cls, name: str, annotation: Any, default: Callable[[], Any] | None) -> OptionField:
        found = None
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            found = next((one for one in more if isinstance(one, Option)), None)
        kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        known = tuple(kind for kind in kinds if kind not in (NoneType, Template))
        kind = known[0] if len(known) == 1 else Any
        return cls(name, kind, NoneType in kinds, default, found, Template in kinds)

    @property
    def is_duration(self) -> bool:
        return self.kind is float and self.name.endswith("_s")

    @property
    def is_size(self) -> bool:
        """Whether it holds bytes, which people write as `10g` and know without `_bytes`."""
        return self.option is not None and self.option.metavar == "SIZE"

    @property
    def said(self) -> str:
        if self.is_size:
            return self.name.removesuffix("_bytes")
        return self.name.removesuffix("_s") if self.is_duration else self.name

    @property
    def shown_default(self) -> str | None:
        value = None if self.default is None else self.default()
        if value is None or value == {} or value == ():
            return None
        return write_duration(value) if self.is_duration else str(value)

    @property
    def values(self) -> tuple[str, ...]:
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    def read(self, value: Any) -> Any:
        """What a value means that may have come as text, through a template.

        Raises:
            InputError: It is not of this type (codes `bad-option`, `bad-choice`, `bad-duration`).
        """
        kind, origin = self.kind, get_origin(self.kind)
        if kind is Any:
            return value
        if kind is bool and not (self.optional and as_text(value) is None):
            return as_bool(value, self.name)
        if as_text(value) is None:
            if self.default is None and not self.optional:
                raise self.missing()
            return None if self.optional or self.default is None else self.default()
        if self.is_duration:
            needs_unit = self.option is not None and self.option.needs_unit
            return self._at_least(as_duration_s(value, needs_unit=needs_unit))
        if kind is float:
            return self._at_least(as_number(value, self.name))
        if kind is int:
            return self._at_least(as_integer(value, self.name))
        if self.values:
            return check_choice(value, self.name, self.values)
        if kind is str:
            return as_text(value)
        if origin is Mapping and Any not in get_args(kind):
            return as_texts_by_name(value, self.name)
        return tuple(as_texts(value)) if origin in (tuple, Sequence) else value

    def missing(self) -> InputError:
        """What is said where it has to be given, and is not."""
        return InputError(f"{self.name} must not be empty.", code="bad-option", hint=_HINT)

    def _at_least(self, number: Any) -> Any:
        least = None if self.option is None else self.option.least
        if number is not None and least is not None and number < least:
            raise InputError(
                f"{self.name} must be {least} or more, not {number}.", code="bad-option", hint=_HINT
            )
        return number


def fields_of(request: type[Any]) -> tuple[OptionField, ...]:
    """All fields of a dataclass, in their order, also those that are no options."""
    hints = get_type_hints(request, include_extras=True)
    return tuple(OptionField.of(each.name, hints[each.name], default_of(each)) for each in fields(request))


def options_of(request: type[Any]) -> tuple[OptionField, ...]:
    """The options that a dataclass declares, in their order."""
    return tuple(each for each in fields_of(request) if each.option is not None)


def values_of(asked: object, options: type[Any]) -> dict[str, Any]:
    """What an object says of the options that a dataclass declares, by their names."""
    return {one.name: getattr(asked, one.name) for one in options_of(options)}


def flag_of(option: OptionField) -> str:
    """What the command line calls an option."""
    own = [] if option.option is None else option.option.flag.split()
    return own[0] if own else f"--{option.said.replace('_', '-')}"


def default_of(field: Any) -> Callable[[], Any] | None:
    """What makes the default of a field of a dataclass; None where it has to be given."""
    if field.default_factory is not MISSING:
        factory: Callable[[], Any] = field.default_factory
        return factory
    return None if field.default is MISSING else lambda: field.default


def write_duration(seconds: float) -> str:
    """A duration as people write one: `2m`."""
    for unit_s, unit in _UNITS:
        if seconds >= unit_s and seconds % unit_s == 0:
            return f"{seconds / unit_s:g}{unit}"
    return f"{seconds:g}s"


def as_data(value: Any) -> Any:
    """A mapping or list that came as text, from a DAG whose templates render to text; else the value."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def as_bool(value: Any, option: str) -> bool:
    """A yes or no that may have come through a template.

    Raises:
        InputError: It is neither.
    """
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise InputError(f"{option} must be true or false, not {value!r}.", code="bad-option", hint=_HINT)
    return text == "true"


def as_number(value: Any, option: str) -> float | None:
    """A number that may have come through a template; None for nothing.

    Raises:
        InputError: It is no number.
    """
    if value is None or value == "" or value == "None":
        return None
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{option} must be a number, not {value!r}.", code="bad-option", hint=_HINT)
    return number


def as_integer(value: Any, option: str) -> int | None:
    """A whole number that may have come through a template; None for nothing.

    Raises:
        InputError: It is no whole number.
    """
    number = as_number(value, option)
    if number is not None and number != int(number):
        raise InputError(f"{option} must be a whole number, not {value!r}.", code="bad-option", hint=_HINT)
    return None if number is None else int(number)


def as_duration_s(value: Any, *, needs_unit: bool = False) -> float | None:
    """Seconds, a `timedelta`, a text such as `30m`, that may have come through a template; None for nothing.

    A text that is a bare number is refused where it `needs_unit`.

    Raises:
        InputError: It is no length of time (code `bad-duration`).
    """
    from streambank.core.units import parse_duration_s

    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float):
        return as_number(value, "A length of time")
    text = as_text(value)
    if text is not None and not needs_unit and re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    return None if text is None else parse_duration_s(text)


def as_texts(value: Any) -> list[str]:
    """Texts that may have come through a template: one, several, or none."""
    found = as_data(value)
    if isinstance(found, (list, tuple)):
        return [str(one) for one in found]
    return [] if (one := as_text(found)) is None else [one]


def as_texts_by_name(value: Any, option: str) -> dict[str, str]:
    """Texts by name that may have come through a template.

    Raises:
        InputError: It is something else.
    """
    found = as_data(value)
    if not isinstance(found, Mapping):
        raise InputError(
            f"{option} must be a mapping of names to texts, not {value!r}.", code="bad-option", hint=_HINT
        )
    return {str(name): str(one).lower() if isinstance(one, bool) else str(one) for name, one in found.items()}


def as_text(value: Any) -> str | None:
    """A text that may have come through a template; None for nothing."""
    return None if value is None or str(value).strip() in ("", "None") else str(value)
