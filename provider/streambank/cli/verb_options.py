"""Options of the command line, made of what dataclasses declare (`streambank.core.options`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, cast, get_origin, get_type_hints

import typer

from streambank.cli.options import Debug, Json
from streambank.core.errors import InputError
from streambank.core.options import OptionField, default_of, flag_of

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

    def add(self, *modules: Any) -> None:
        """Add the verbs of modules: their `VERBS`, by name, each with its examples."""
        for module in modules:
            for name, (verb, examples) in module.VERBS.items():
                self.command(name, epilog=examples)(verb)


def with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb for typer: of its parameters, and of the fields of each that is a dataclass, it makes options.

    One that is annotated by an `Option` is read by its type; others are typer's own. What the command line
    leaves out has its default. An option that a verb and a dataclass both have is the verb's, and both get
    it. The help has an option under the heading `PANEL` of the class that declares it. Each verb also takes
    `--json` and `--debug`.
    """
    own = inspect.signature(verb, eval_str=True).parameters
    requests: dict[str, type[Any]] = {
        name: cast("type[Any]", each.annotation)
        for name, each in own.items()
        if is_dataclass(each.annotation)
    }
    fields_of = {name: _fields_of(request) for name, request in requests.items()}
    alone = {name: _taken(each) for name, each in own.items() if name not in requests}
    taken: dict[str, tuple[OptionField | None, inspect.Parameter]] = {}
    for name in own:
        taken |= fields_of[name] if name in requests else {name: alone[name]}
    taken |= alone

    @wraps(verb)
    def command(**given: Any) -> None:
        values = {
            name: given[name] if option is None else _read(option, given[name])
            for name, (option, _) in taken.items()
            if option is None or given[name] is not None
        }
        asked = {name: values[name] for name in alone if name in values}
        for name, request in requests.items():
            asked[name] = request(**{field: values[field] for field in fields_of[name] if field in values})
        verb(**asked)

    parameters = [*(parameter for _, parameter in taken.values()), *_OF_EACH]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _fields_of(request: type[Any]) -> dict[str, tuple[OptionField | None, inspect.Parameter]]:
    """What the command line takes for the fields of a dataclass that people are asked for."""
    hints = get_type_hints(request, include_extras=True)
    return {
        field.name: _taken(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if (default := default_of(field)) is None else default(),
                annotation=hints[field.name],
            ),
            _panel(request, field.name),
        )
        for field in fields(request)
        if get_origin(hints[field.name]) is Annotated
    }


def _taken(each: inspect.Parameter, panel: str | None = None) -> tuple[OptionField | None, inspect.Parameter]:
    """An option, and what typer takes for it; None where it is typer's own."""
    default = None if each.default is each.empty else lambda: each.default
    option = OptionField.of(each.name, each.annotation, default)
    if option.option is None:
        return None, each.replace(kind=each.KEYWORD_ONLY)
    return option, _parameter(option, panel)


def help_of(option: OptionField) -> str:
    """What the command line says of an option."""
    assert option.option is not None, "options_of gives options"
    said = [option.option.help]
    said += ["May be repeated."] if _is_repeated(option) else []
    said += [f"Default: {option.option.usual}."] if option.option.usual else []
    return " ".join(said)


def _is_repeated(option: OptionField) -> bool:
    assert option.option is not None, "options_of gives options"
    origin = get_origin(option.kind)
    return origin is Mapping or (origin is tuple and option.option.parse is None)


def _panel(request: type[Any], name: str) -> str | None:
    """The heading of the class that declares a field."""
    declaring = next(each for each in request.__mro__ if name in vars(each).get("__annotations__", {}))
    return cast("str | None", vars(declaring).get("PANEL"))


def _parameter(option: OptionField, panel: str | None) -> inspect.Parameter:
    assert option.option is not None, "options_of gives options"
    said, kind, flag = option.option, option.kind, flag_of(option)
    default = None if option.default is None else option.default()
    names, metavar = (flag, *said.flag.split()[1:]), said.metavar
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
