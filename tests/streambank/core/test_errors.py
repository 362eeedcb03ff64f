"""docs/errors.md lists every code that the source can raise or report, under its kind, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from streambank.core import errors
from tests.support.paths import ROOT

PAGE = ROOT / "docs/errors.md"
KINDS = {kind.__name__: kind for kind in errors.StreambankError.__subclasses__()}
FINDING = "Finding"
ANY = "?"
"""The kind of a code that is handed to a function which raises it."""


def constants(node: ast.expr | None) -> Iterator[str]:
    """The codes that an expression can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value:
            yield node.value
    elif isinstance(node, ast.IfExp):
        yield from constants(node.body)
        yield from constants(node.orelse)


def helpers(tree: ast.Module) -> dict[str, int]:
    """Functions that take a code, and at which place."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args]
            if "code" in names:
                found[node.name] = names.index("code")
    return found


def codes_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Kind and code of everything that a module raises or reports."""
    taking = helpers(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id == "code":
                yield from ((ANY, code) for code in constants(node.value))
            elif node.targets[0].id == "_CODES" and isinstance(node.value, ast.Dict):
                for value in node.value.values:
                    if isinstance(value, ast.Tuple):
                        yield from ((ANY, code) for code in constants(value.elts[0]))
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        given = next((each.value for each in node.keywords if each.arg == "code"), None)
        if name == FINDING and node.args:
            yield from ((FINDING, code) for code in constants(node.args[0]))
        elif name in KINDS:
            yield from ((name, code) for code in constants(given))
        elif name in taking and len(node.args) > taking[name]:
            yield from ((ANY, code) for code in constants(node.args[taking[name]]))
        elif name.endswith("Error"):
            yield from ((ANY, code) for code in constants(given))


def in_source() -> dict[str, set[str]]:
    """Every code of the source, and the kinds it comes as."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "provider").rglob("*.py")):
        for kind, code in codes_of(ast.parse(path.read_text())):
            found.setdefault(code, set()).add(kind)
    for name, each in KINDS.items():
        found.setdefault(each.default_code, set()).add(name)
    return found


def in_page() -> dict[str, set[str]]:
    """Every code of the page, and the kinds of the sections it stands in."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        kind = heading.split()[0].removesuffix("s") if heading.startswith("Finding") else heading.split()[0]
        for code in re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE):
            found.setdefault(code, set()).add(kind)
    return found


def test_the_page_lists_every_code_and_no_other() -> None:
    source, page = in_source(), in_page()
    assert sorted(source.keys() - page.keys()) == [], "not documented"
    assert sorted(page.keys() - source.keys()) == [], "documented, and nowhere in the source"
    wrong = {
        code: sorted(kinds - page[code] - {ANY})
        for code, kinds in source.items()
        if kinds - page[code] - {ANY}
    }
    assert not wrong, "documented under another kind"


def without_hint(tree: ast.Module) -> Iterator[int]:
    """Lines at which an error of ours is made that says nothing about what to do next."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            given = {each.arg: each.value for each in node.keywords}
            hint = given.get("hint", given.get(None))  # a hint, or `**details` that may hold one
            if hint is None or (isinstance(hint, ast.Constant) and not hint.value):
                yield node.lineno


def test_every_error_has_a_hint() -> None:
    missing = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "provider").rglob("*.py"))
        for line in without_hint(ast.parse(path.read_text()))
    }
    assert not missing


def test_an_error_without_a_hint_is_seen() -> None:
    module = ast.parse('InputError("x")\nInputError("x", hint="")\nInputError("x", hint="y")\nKeyError("x")')
    assert list(without_hint(module)) == [1, 2]


def test_sections_name_the_exit_codes() -> None:
    text = PAGE.read_text()
    for kind in KINDS.values():
        assert f"## {kind.__name__} (exit code {kind.exit_code})" in text


def test_the_search_finds_what_it_should() -> None:
    module = ast.parse(
        'raise InputError("x", code="one")\n'
        'raise StorageError("x", code="two" if x else "three")\n'
        "def _bad(message, code): raise IntegrityError(message, code=code)\n"
        '_bad("x", "four")\n'
        'Finding("five", "error", "", "", "", "")\n'
        'code = "six"\n'
        '_CODES = {1: ("seven", "hint")}\n'
    )
    assert set(codes_of(module)) == {
        ("InputError", "one"),
        ("StorageError", "two"),
        ("StorageError", "three"),
        (ANY, "four"),
        (FINDING, "five"),
        (ANY, "six"),
        (ANY, "seven"),
    }
