from __future__ import annotations

import tomllib

import pytest

from streambank.declaration.fields import TomlLines

TEXT = '''# a comment with = and [brackets]
top = 1
"quoted.key" = "a # no comment"

[a]   # comment
x = """
[not.a.table]
y = 2
"""
z = [ 1, # one = 1
  "]", \'\'\'
q = 3\'\'\' ]
last = "end\\" # = "
[a."b.c".d]
deep.er = { inline = 1, other = "}" }
[[many]]
n = 1
[[many]]
n = 2
ends = """quotes""""'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("quoted.key",), 3),
        (("a",), 5),
        (("a", "x"), 6),
        (("a", "z"), 10),
        (("a", "last"), 13),
        (("a", "b.c", "d"), 14),
        (("a", "b.c", "d", "deep", "er"), 15),
        (("a", "b.c", "d", "deep", "er", "inline"), 15),
        (("many",), 16),
        (("many", "n"), 17),
        (("many", "ends"), 20),
        (("a", "not there"), 5),
        (("not there",), None),
    ],
)
def test_lines_of_keys(path: tuple[str, ...], line: int | None) -> None:
    tomllib.loads(TEXT)
    assert TomlLines(TEXT).line(path) == line


def test_keys_in_strings_and_comments_are_none() -> None:
    lines = TomlLines(TEXT)
    assert not lines.has(("a", "y")) and not lines.has(("a", "q")) and not lines.has(("not",))
    assert TomlLines("").line(("a",)) is None
