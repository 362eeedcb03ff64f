"""docs/stories.md: each story has its thread, its answer, and tests that exist or a reason for none."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "stories.md"
STORIES = re.findall(
    r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def part(text: str, name: str) -> str:
    """A paragraph of a story, which begins with its name in bold."""
    found = re.search(rf"^\*\*{name}:\*\* (.+?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


@cache
def found_in(file: Path) -> dict[str, bool]:
    """The tests of a file, and whether `make test` leaves them to the storm."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    whole = "tests/storm/" in file.as_posix() or any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark" and is_storm(node.value)
        for node in tree.body
    )
    return {
        node.name: whole or any(map(is_storm, node.decorator_list))
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def is_storm(marks: ast.expr) -> bool:
    """Whether a mark, or one of several, is that of the storm. Marks of single parameters are not."""
    if isinstance(marks, ast.List | ast.Tuple):
        return any(map(is_storm, marks.elts))
    return ast.unparse(marks) == "pytest.mark.storm"


def test_the_page_has_all_of_them() -> None:
    assert len(STORIES) == 32
    assert len({title for title, _ in STORIES}) == len(STORIES)


@pytest.mark.parametrize(("title", "text"), STORIES, ids=[title for title, _ in STORIES])
def test_a_story_has_a_thread_an_answer_and_a_test_or_a_reason(title: str, text: str) -> None:
    assert re.search(r"\]\(https://[^)]+\)", part(text, "Asked")), f"{title} names no thread"
    answer = part(text, "Answer")
    assert re.match(r"(Yes|In part|No)\b", answer), f"{title} has no answer"
    assert answer.startswith("Yes") or part(text, "Not"), f"{title} does not say what is missing"
    shown = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", part(text, "Shown by"))
    assert shown or part(text, "Not shown"), f"{title} has neither a test nor a reason"
    assert part(text, "Shown by").count("`") == 2 * len(shown), f"{title} names something else as a test"
    for path, name in shown:
        assert name in found_in(ROOT / path), f"{title}: {path} has no {name}"


@pytest.mark.parametrize(("title", "text"), STORIES, ids=[title for title, _ in STORIES])
def test_what_only_the_storm_shows_is_said(title: str, text: str) -> None:
    """What stands before the word runs in `make test`, and what stands behind it does not."""
    before, _, behind = part(text, "Shown by").partition("(storm)")
    for said, storm in ((before, False), (behind, True)):
        for path, name in re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", said):
            assert found_in(ROOT / path)[name] is storm, f"{title}: {name}"
