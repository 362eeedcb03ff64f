"""The zip for --py-files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from streambank_spark.submit.bundle import write_bundle


def test_the_same_code_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = write_bundle(tmp_path / "one.zip"), write_bundle(tmp_path / "two.zip")
    assert one.read_bytes() == two.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.zip", "two.zip"]


def test_python_imports_the_runner_from_it(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle.zip")
    # -S and -E: neither the checkout nor an installation of the packages is on the path.
    code = f"import sys; sys.path.insert(0, {str(bundle)!r}); import streambank_spark.runner.entry as it"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", f"{code}; print(it.__file__)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == f"{bundle}/streambank_spark/runner/entry.py"
