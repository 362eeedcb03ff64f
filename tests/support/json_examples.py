"""The examples of docs/reference/json.md, and how a real answer differs from one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

PAGE = ROOT / "docs/reference/json.md"

MAPS = {
    "offset_conf",
    "taken_by",
    "by",
    "batches",
    "generations",
    "savepoints",
    "queries",
    "desired_by",
    "operation_by",
    "facts",
    "metrics",
    "restores",
    "days",
    "outputs",
    "objectives",
    "parts",
}
"""Objects whose keys are data: names of queries, settings, people, metrics."""


def examples(page: Path = PAGE) -> dict[str, Any]:
    """Every example by the heading it stands under."""
    found = re.findall(
        r"^## (.+?)\n(?:(?!^## ).)*?^```json\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
    )
    return {heading: json.loads(text) for heading, text in found}


def mismatches(example: Any, real: Any, where: str = "") -> Iterator[str]:
    """Where a real answer is not shaped like the example; an empty list and a null have no shape."""
    if example is None or real is None:
        return
    if isinstance(example, dict) and isinstance(real, dict):
        if where.rpartition(".")[2] in MAPS:
            for value in real.values():
                for shape in list(example.values())[:1]:
                    yield from mismatches(shape, value, f"{where}.*")
            return
        for key in sorted(example.keys() ^ real.keys()):
            yield f"{where}.{key} is only in {'the example' if key in example else 'the answer'}"
        for key in example.keys() & real.keys():
            yield from mismatches(example[key], real[key], f"{where}.{key}")
    elif isinstance(example, list) and isinstance(real, list):
        for value in real:
            for shape in example[:1]:
                yield from mismatches(shape, value, f"{where}[]")
    elif kind(example) != kind(real):
        yield f"{where} is {kind(example)} in the example, and {kind(real)} in the answer"


def kind(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if number else type(value).__name__
