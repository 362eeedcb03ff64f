"""The bench of choices: every part to its page, with a few keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.choices.__main__ import PARTS
from tests.support.paths import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.storm]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_writes_its_table(part: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    options = ["--keys", "400", "--rounds", "1", "--output", str(page)]
    command = [sys.executable, "-m", "bench.choices", part, *options]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=550, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    text = page.read_text(encoding="utf-8")
    assert f"## {PARTS[part].title}" in text
    assert text.count("\n| ") > 5
