"""What the threat model says is held by tests, and they are there."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "formats" / "threats.md").read_text(encoding="utf-8")


def test_every_test_that_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:tests/[\w/]+/)?test_\w+\.py)`", TEXT))

    paths = {name: ROOT / (name if "/" in name else f"tests/attacks/{name}") for name in named}
    assert len(paths) > 30
    assert [name for name, path in sorted(paths.items()) if not path.is_file()] == []


def test_every_code_that_it_names_has_a_row() -> None:
    errors = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    codes = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", TEXT))

    assert len(codes) > 3
    assert [code for code in sorted(codes) if f"`{code}`" not in errors] == []
