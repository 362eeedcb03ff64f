"""The bench of choices: every part to its page, with a few keys, and the command on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.choices.__main__ import PARTS, arguments
from tests.support.paths import ROOT


def test_the_command_on_the_page_leaves_out_where_this_machine_keeps_things() -> None:
    assert arguments([]).given == ""
    asked = [
        "--keys",
        "10",
        "checkpoints",
        "access",
        "--hdfs",
        "--json",
        "figures.json",
        "--output",
        "page.md",
    ]
    assert arguments(asked).given == " checkpoints access --keys 10 --hdfs"


@pytest.mark.spark
@pytest.mark.storm
@pytest.mark.parametrize("part", PARTS)
def test_a_part_writes_its_table(part: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    options = ["--keys", "400", "--rounds", "1", "--hdfs", "--output", str(page)]
    command = [sys.executable, "-m", "bench.choices", part, *options]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=550, check=False)
    assert said.returncode == 0, said.stderr[-3000:]
    text = page.read_text(encoding="utf-8")
    assert f"## {PARTS[part].title}" in text
    assert text.count("\n| ") > 5
    assert not re.search(r"^\| on HDFS.*\|  \|", text, re.MULTILINE), "files on HDFS are counted"
    assert text.count("| on HDFS") == 2 * (part == "checkpoints")
