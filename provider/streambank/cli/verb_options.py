"""Options of the command line, made of what dataclasses declare (`streambank.core.options`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, cast, get_origin

import typer

from streambank.cli.options import Debug, Json
from streambank.core.errors import InputError
from streambank.core.options import OptionField, flag_of, options_of

F = TypeVar("F", bound=Callable[..., Any])


class Commands(typer.Typer):
    """Verbs that take options: `with_options` makes a command of each."""

    def command(self, *args: Any, **kwargs: Any) -> Callable[[F], F]:
        """As typer's."""
        add = super().command(*args, **kwargs)

        def added(verb: F) -> F:
            add(with_options(verb))
            return verb

        return added


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb for typer: in place of its parameter of a dataclass of options, it takes these options.

    What the command line leaves out has the default of its field. The help has an option under the heading
    `PANEL` of the class that declares it. Each verb also takes `--json` and `--debug`.
    """
    parameters: list[inspect.Parameter] = []
    asked: dict[str, type[Any]] = {}
    for each in inspect.signature(verb, eval_str=True).parameters.values():
        if is_dataclass(each.annotation):
            asked[each.name] = request = cast("type[Any]", each.annotation)
            parameters += [_parameter(option, _panel(request, option.name)) for option in options_of(request)]
        else:
            parameters.append(each.replace(kind=each.KEYWORD_ONLY))
    own = {each.name for each in parameters}
    parameters += [each for each in _OF_EACH if each.name not in own]

    @wraps(verb)
    def command(**given: Any) -> None:
        for each in _OF_EACH:
            if each.name not in own:
                del given[each.name]
        for name, request in asked.items():
            said = ((option, given.pop(option.name)) for option in options_of(request))
            given[name] = request(
                **{option.name: _read(option, value) for option, value in said if value is not None}
            )
        verb(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def help_of(option: OptionField) -> str:
    """What the command line says of an option."""
    assert option.option is not None, "options_of gives options"
    said = [option.option.help]
    said += ["May be repeated."] if _is_repeated(option) else []
    said += [f"Default: {option.option.usual}."] if option.option.usual else []
    return " ".join(said)


def _is_repeated(option: OptionField) -> bool:
    assert option.option is not None, "options_of gives options"
    return get_origin(option.kind) in (Mapping, tuple) and option.option.parse is None


def _panel(request: type[Any], name: str) -> str | None:
    """The heading of the class that declares a field."""
    declaring = next(each for each in request.__mro__ if name in vars(each).get("__annotations__", {}))
    return cast("str | None", vars(declaring).get("PANEL"))


def _parameter(option: OptionField, panel: str | None) -> inspect.Parameter:
    assert option.option is not None, "options_of gives options"
    said, kind, flag = option.option, option.kind, flag_of(option)
    default = None if option.default is None else option.default()
    names, metavar = (flag,), said.metavar
    typed: Any = kind
    if kind is bool and (default or said.off):
        names = (f"{flag}/{said.off or f'--no-{flag[2:]}'}",)
    elif option.is_duration:
        typed, metavar, default = str, metavar or "DURATION", option.shown_default
    elif option.is_size:
        typed = str
    elif get_origin(kind) is Mapping:
        typed, metavar, default = list[str], metavar or "NAME=VALUE", None
    elif get_origin(kind) is tuple:
        typed, default = list[str] if _is_repeated(option) else str, None
    least = said.least if typed in (int, float) else None
    more: Any = (
        typer.Argument(help=help_of(option), metavar=metavar)
        if said.positional
        else typer.Option(
            *names,
            help=help_of(option),
            metavar=metavar,
            min=least,
            envvar=said.env or None,
            rich_help_panel=panel,
        )
    )
    if option.default is None:
        annotation: Any = Annotated[typed, more]
        default = inspect.Parameter.empty
    else:
        annotation = Annotated[typed if default is not None else typed | None, more]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _read(option: OptionField, value: Any) -> Any:
    if option.option is not None and option.option.parse is not None:
        return option.option.parse(value)
    if get_origin(option.kind) is Mapping:
        return dict(_pairs(flag_of(option), value))
    if option.is_duration or option.is_size:
        from streambank.core.units import parse_any_bytes, parse_duration_s

        return parse_duration_s(value) if option.is_duration else parse_any_bytes(value)
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


_OF_EACH = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
    for name, annotation in (("as_json", Json), ("debug", Debug))
)
