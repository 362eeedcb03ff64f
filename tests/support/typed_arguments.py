"""The arguments that operators have from options of verbs, for type checkers, written from these options.

`python -m tests.support.typed_arguments` writes them into `streambank_airflow/arguments.pyi`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_origin

from streambank.core import state_options, verb_options
from streambank.core.options import OptionField, options_of
from tests.support.paths import ROOT

STUB = ROOT / "provider/streambank_airflow/arguments.pyi"
MARK = "# Below: "


def classes() -> list[type[Any]]:
    found = [*vars(verb_options).values(), *vars(state_options).values()]
    return [one for one in found if isinstance(one, type) and one.__name__.endswith("Options")]


def written() -> str:
    """What the file should hold."""
    head, mark, rest = STUB.read_text(encoding="utf-8").partition(MARK)
    return "\n\n".join([f"{head}{mark}{rest.splitlines()[0]}", *map(_class, classes())]) + "\n"


def _class(options: type[Any]) -> str:
    base = options.__bases__[0].__name__.replace("Options", "Arguments")
    own = [one for one in options_of(options) if one.name in vars(options)["__annotations__"]]
    lines = [f"    {one.name}: {_kind(one)} = ..." for one in own]
    name = options.__name__.replace("Options", "Arguments")
    return "\n".join(
        [f"class {name}({'OptionArguments' if base == 'object' else base}):", *(lines or ["    pass"])]
    )


def _kind(one: OptionField) -> str:
    name = re.sub(r"\b(typing|collections\.abc)\.", "", getattr(one.kind, "__name__", repr(one.kind)))
    if get_origin(one.kind) is not None:
        name = re.sub(r"\b(typing|collections\.abc)\.", "", repr(one.kind)).replace("'", '"')
    if one.values:
        holder = "OneOf"
    elif get_origin(one.kind) is tuple:
        holder = "Texts"
    elif get_origin(one.kind) is Mapping:
        holder = "Named"
    else:
        holder = "Seconds" if one.is_duration else "Templated"
    return f"{holder}[{name}{' | None' if one.optional else ''}]"


if __name__ == "__main__":
    STUB.write_text(written(), encoding="utf-8")
