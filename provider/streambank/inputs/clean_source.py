"""Whether an application lets Spark take files away from its source: the option `cleanSource`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

OPTION = "cleanSource"


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What an application says of `cleanSource`: line and value of each setting that is not `off`."""

    settings: tuple[tuple[int, str], ...] = ()
    not_known: str = ""


def cleaning_of(application: str | Path) -> Cleaning:
    """Read a PySpark application for the option, if it is a file of this machine."""
    try:
        tree = ast.parse(Path(application).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        why = f"The application {application} cannot be read here ({type(error).__name__})."
        return Cleaning(not_known=why)
    return Cleaning(tuple((line, value) for line, value in _settings(tree) if value.lower() != "off"))


def _settings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and value of each setting of the option: `.option("cleanSource", "delete")`, and as a keyword."""
    for node in ast.walk(tree):
        pairs: Sequence[tuple[Any, Any]] = ()
        if isinstance(node, ast.Call):
            pairs = [*pairwise(node.args), *((ast.Constant(one.arg), one.value) for one in node.keywords)]
        elif isinstance(node, ast.Dict):
            pairs = [*zip(node.keys, node.values, strict=True)]
        for name, value in pairs:
            if not isinstance(name, ast.Constant) or str(name.value).lower() != OPTION.lower():
                continue
            said = value.value if isinstance(value, ast.Constant) else ast.unparse(value)
            yield value.lineno, str(said)
