"""A program runs as if Python had been started with it: exit code, arguments, path, traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

RUN = """
import sys
from pathlib import Path
from streambank_spark.runner.application import run
sys.exit(run(Path(sys.argv[1]), sys.argv[2:], lambda error: 77))
"""


def ran(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "app.py").write_text(text)
    (folder / "beside.py").write_text("WORD = 'found beside'")
    return subprocess.run(
        [sys.executable, "-c", RUN, str(folder / "app.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "provider")},
    )


def test_it_sees_what_a_program_sees(tmp_path: Path) -> None:
    done = ran(
        tmp_path,
        "import pickle, sys, beside\n"
        "def function(): ...\n"
        "assert __name__ == '__main__' and __file__ == sys.argv[0]\n"
        "assert sys.modules['__main__'].function is function\n"
        "print(sys.argv[1:], beside.WORD)\n",
        "one",
        "--two",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['one', '--two'] found beside\n", "")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no input')", 1, "no input\n"),
        ("raise ValueError('bad row')", 1, "ValueError: bad row"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("def broken(:", 1, "SyntaxError"),
        (
            "from streambank.core.errors import RefusedError\n"
            "raise RefusedError('not here', code='not-wanted', hint='')",
            77,
            "not here",
        ),
    ],
)
def test_it_ends_as_python_would_end(tmp_path: Path, text: str, code: int, said: str) -> None:
    done = ran(tmp_path, text)
    assert done.returncode == code
    assert said in done.stderr and bool(said) == bool(done.stderr)
