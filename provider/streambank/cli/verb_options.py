"""Options of the command line, made of what `streambank.core.verb_options` declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, cast, get_origin

import typer

from streambank.core.errors import InputError
from streambank.core.options import Declared, options_of


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb for typer: in place of its parameter of a dataclass of options, it takes these options.

    What the command line leaves out has the default of its field.
    """
    parameters: list[inspect.Parameter] = []
    asked: dict[str, type[Any]] = {}
    for each in inspect.signature(verb, eval_str=True).parameters.values():
        if is_dataclass(each.annotation):
            asked[each.name] = request = cast("type[Any]", each.annotation)
            parameters += [_parameter(option) for option in options_of(request)]
        else:
            parameters.append(each.replace(kind=each.KEYWORD_ONLY))

    @wraps(verb)
    def command(**given: Any) -> None:
        for name, request in asked.items():
            said = ((option, given.pop(option.name)) for option in options_of(request))
            given[name] = request(
                **{option.name: _read(option, value) for option, value in said if value is not None}
            )
        verb(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def flag_of(option: Declared) -> str:
    """What the command line calls an option."""
    own = None if option.option is None else option.option.flag
    return own or f"--{option.said.replace('_', '-')}"


def help_of(option: Declared) -> str:
    """What the command line says of an option."""
    assert option.option is not None, "options_of gives options"
    said = [option.option.help]
    said += ["May be repeated."] if get_origin(option.kind) is Mapping else []
    said += [f"Default: {option.option.usual}."] if option.option.usual else []
    return " ".join(said)


def _parameter(option: Declared) -> inspect.Parameter:
    assert option.option is not None, "options_of gives options"
    said, kind, flag = option.option, option.kind, flag_of(option)
    default = None if option.default is None else option.default()
    names, metavar, least = (flag,), said.metavar, None
    typed: Any = kind
    if kind is bool and default:
        names = (f"{flag}/--no-{flag[2:]}",)
    elif option.is_duration:
        typed, metavar, default = str, metavar or "DURATION", option.shown_default
    elif get_origin(kind) is Mapping:
        typed, metavar, default = list[str], metavar or "NAME=VALUE", None
    elif get_origin(kind) is tuple:
        typed, default = str if said.parse is not None else list[str], None
    elif kind is int:
        least = said.least
    more: Any = (
        typer.Argument(help=help_of(option), metavar=metavar)
        if said.positional
        else typer.Option(*names, help=help_of(option), metavar=metavar, min=least)
    )
    annotation: Any = Annotated[typed if default is not None else typed | None, more]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _read(option: Declared, value: Any) -> Any:
    if option.option is not None and option.option.parse is not None:
        return option.option.parse(value)
    if get_origin(option.kind) is Mapping:
        return dict(_pairs(flag_of(option), value))
    if option.is_duration:
        from streambank.core.units import parse_duration_s

        return parse_duration_s(value)
    return tuple(value) if isinstance(value, list) else value


def _pairs(flag: str, given: list[str]) -> Iterator[tuple[str, str]]:
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"{flag} takes NAME=VALUE, not {text!r}.",
                code="bad-option",
                hint=f"Write {flag} NAME=VALUE, once for each.",
            )
        yield name.strip(), value
