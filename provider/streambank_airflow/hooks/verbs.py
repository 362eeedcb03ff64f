"""What the verbs of the hook have in common: the connection, what is asked, by whom, how they fail."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, get_type_hints

from streambank.core.options import default_of, fields_of, options_of
from streambank_airflow.caller import caller
from streambank_airflow.failures import told_in_task
from streambank_airflow.hooks.declared import DeclaredJobs

_log = logging.getLogger(__name__)


class _Caller(dict[str, str]):
    def __repr__(self) -> str:
        return "<who runs this>"


CALLER: Mapping[str, str] = _Caller()
"""Stands for who asks, where a verb is not told: `streambank_airflow.caller.caller`."""


@dataclass(kw_only=True)
class Asked:
    """What any verb with options is asked, beside its own.

    Attributes:
        note: Why; kept with the records of what is done.
        by: Who asks, for the records; the task that runs, or outside of one the user of this process.
    """

    note: str = ""
    by: Mapping[str, str] = field(default_factory=lambda: CALLER)


@dataclass(kw_only=True)
class AskedToSay(Asked):
    """What a verb with steps is asked.

    Attributes:
        say: Hears when a step begins, in words.
    """

    say: Callable[[str], None] = _log.info


class _Part(Protocol):
    """A part of the hook: what it shares with the others."""

    @property
    def declared(self) -> DeclaredJobs: ...


H = TypeVar("H", bound=_Part)
P = ParamSpec("P")
Q = ParamSpec("Q")
A = TypeVar("A", bound=Asked)
R = TypeVar("R")


def connected(verb: Callable[Concatenate[H, P], R]) -> Callable[Concatenate[H, P], R]:
    """Let a verb of the hook's parts work under `DeclaredJobs.access`, with the name of a job on a copy.

    Who asks is the caller where nobody is named, and an error says in a task what a task says.
    """
    is_asked = "by" in inspect.signature(verb).parameters

    @wraps(verb)
    def with_access(self: H, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.declared.access(), told_in_task():
            named = [self.declared.saved_as(one) if isinstance(one, str) else one for one in args[:1]]
            if is_asked and kwargs.get("by", CALLER) is CALLER:
                kwargs["by"] = caller()
            return verb(self, *named, *args[1:], **kwargs)  # type: ignore[arg-type]  # of the same types

    return with_access


def asking(
    options: Callable[Q, A], *, tries: bool = False
) -> Callable[[Callable[[H, str, A], R]], Callable[Concatenate[H, str, Q], R]]:
    """Make a verb of one that takes a job and a dataclass: it takes the fields of that as keyword arguments.

    Each is read by its type, as the arguments of operators are: `force_after_s="60s"`.

    Args:
        options: The dataclass.
        tries: Another try of the task that asks goes on with what the one before has done.
    """

    def verb_of(verb: Callable[[H, str, A], R]) -> Callable[Concatenate[H, str, Q], R]:
        @connected
        @wraps(verb)
        def with_options(self: H, ref: str, /, *args: Q.args, **kwargs: Q.kwargs) -> R:
            asked = options(*args, **kwargs)
            for one in fields_of(type(asked)):
                value = getattr(asked, one.name)
                setattr(asked, one.name, value if value is CALLER else one.read(value))
            if asked.by is CALLER:
                asked.by = caller(f"{verb.__name__}:{ref}" if tries else "")
            return verb(self, ref, asked)

        with_options.__signature__ = _signature(verb, options)  # type: ignore[attr-defined]  # for people
        with_options.__doc__ = _help(verb, options)
        return with_options

    return verb_of


def _signature(verb: Callable[..., Any], options: Any) -> inspect.Signature:
    kinds, needed = get_type_hints(options), inspect.Parameter.empty
    taken = [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=needed if (default := default_of(one)) is None else default(),
            annotation=kinds[one.name],
        )
        for one in fields(options)
    ]
    given = inspect.signature(verb)
    own = [one.replace(kind=one.POSITIONAL_ONLY) for one in list(given.parameters.values())[:2]]
    return given.replace(parameters=[*own, *taken])


def _help(verb: Callable[..., Any], options: Any) -> str:
    own = [inspect.getdoc(one) or "" for one in options.__mro__ if issubclass(one, Asked)]
    said = [one.partition("Attributes:\n")[2] for one in own]
    said += [f"    {one.name}: {one.option.help}" for one in options_of(options) if one.option is not None]
    return "\n".join([inspect.getdoc(verb) or "", "", "Args:", *filter(None, said)])
