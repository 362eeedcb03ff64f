"""docs/reference/doctor.md has a row for each of doctor's findings, with its severities, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.support.paths import ROOT

PAGE = ROOT / "docs/reference/doctor.md"


def constants(node: ast.expr) -> Iterator[str]:
    """What an expression can be."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from constants(node.body)
        yield from constants(node.orelse)


def in_source() -> dict[str, set[str]]:
    """Codes of doctor's own findings, and their severities."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "provider/streambank/doctor").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                for code in constants(node.args[0]):
                    found.setdefault(code, set()).update(constants(node.args[1]))
    return found


def rows() -> list[list[str]]:
    """The cells of every row that begins with a code."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_finding_has_a_row_and_every_row_is_one() -> None:
    shown = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows()}
    assert shown == in_source()
    assert len(shown) == len(rows())


def test_every_row_says_what_it_is_by_what_and_what_helps() -> None:
    assert all(len(row) == 5 and all(row) for row in rows())


def test_the_search_finds_both_severities() -> None:
    (code,) = ast.parse('Finding("x", "info" if calm else "warning", "", "", "", "")').body
    assert isinstance(code, ast.Expr) and isinstance(code.value, ast.Call)
    assert set(constants(code.value.args[1])) == {"info", "warning"}
