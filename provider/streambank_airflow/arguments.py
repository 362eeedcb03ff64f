"""How operators and sensors declare their arguments; what each may be given as is in `arguments.pyi`.

`Templated[int]` reads as an int, and takes whatever only a run knows besides: text with Jinja, the output of
a task, `dag.param(...)`. `OneOf[Level]` takes no text but its own words, so that a type checker finds
`level="ful"`; a template is `Jinja("{{ params.level }}")` there, which at run time is its text. Options of
verbs are declared once (streambank.core.verb_options): each class of `Arguments` is one of `Options`.
"""

from __future__ import annotations

from typing import Any, NewType

from streambank.core import state_options, verb_options
from streambank.core.options import Template

Jinja = NewType("Jinja", str)


class Templated:
    """An annotation: a type, or what only a run knows."""

    def __class_getitem__(cls, kind: Any) -> Any:
        return kind | Template


Named = OfJob = OneOf = Seconds = Texts = Templated


def argument(default: Any) -> Any:
    """The default of such an argument."""
    return default


def __getattr__(name: str) -> Any:
    """The options of a verb, as an operator takes them."""
    options = name.removesuffix("Arguments") + "Options"
    for module in (verb_options, state_options):
        if name.endswith("Arguments") and hasattr(module, options):
            return getattr(module, options)
    raise AttributeError(f"module {__name__} has no attribute {name}")
