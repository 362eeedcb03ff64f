"""What a type checker knows of a DAG of one's own: a right one passes, and each wrong line is found.

`make lint` holds that each time: where a line is not found, its `type: ignore` is unused.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

HERE = Path(__file__).parent
MARK = re.compile(r"  # type: ignore\[([a-z-]+)\].*")
SAID = re.compile(r"^\S+?:(\d+): error: .*\[([a-z-]+)\]$", re.MULTILINE)


def checked(file: Path) -> dict[int, str]:
    """The lines with which mypy --strict finds something wrong, and the codes of that."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--hide-error-context", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr + done.stdout
    return {int(line): code for line, code in SAID.findall(done.stdout)}


@pytest.mark.storm
def test_a_right_dag_passes_and_each_wrong_line_is_found(tmp_path: Path) -> None:
    lines = (HERE / "wrong_lines.py").read_text(encoding="utf-8").splitlines()
    wrong = tmp_path / "wrong_lines_of_a_dag.py"
    wrong.write_text("\n".join(MARK.sub("", line) for line in lines), encoding="utf-8")
    marked = {number: found[1] for number, line in enumerate(lines, 1) if (found := MARK.search(line))}

    assert len(marked) >= 12
    assert checked(wrong) == marked
    assert checked(HERE / "right_dag.py") == {}
