"""Spark of other releases than the installed one, each in a folder of its own below `.streambank`.

A distribution is made of PySpark's wheel, which holds all of one but the file RELEASE.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.venvs import LOCKS, filled_venv, version_of

_SPARKS = ROOT / ".streambank" / "sparks"
_PINNED = re.compile(r"^pyspark==(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OtherSpark:
    """One of them.

    Attributes:
        python: An interpreter that has its PySpark, and no Streambank.
        home: The same as a distribution.
    """

    version: str
    python: Path
    home: Path


def other_spark(release: str, python: str = sys.executable) -> OtherSpark:
    """The Spark of a release such as `3.5`; fetched and laid out the first time, which takes a minute."""
    lock = LOCKS / f"spark-{release}.lock"
    pinned = _PINNED.search(lock.read_text(encoding="utf-8"))
    assert pinned is not None, f"{lock} names no pyspark"
    version = pinned[1]
    folder = _SPARKS / f"{version}-{version_of(python)}"
    own = filled_venv(folder, lock, python, then=lambda venv: _make_distribution(venv, version))
    return OtherSpark(version, own, folder / "distribution")


def python310() -> str:
    """A Python 3.10, the oldest that drivers run on."""
    return python_of("3.10")


def python_of(version: str) -> str:
    """An interpreter of a version such as `3.12`: this one, the one of PYTHON312, or one on the PATH."""
    variable = f"PYTHON{version.replace('.', '')}"
    for name in (sys.executable, os.environ.get(variable), f"python{version}"):
        path = shutil.which(name) if name else None
        if path is not None and version_of(path, check=False) == version:
            return path
    raise AssertionError(
        f"`make test-matrix` needs a Python {version}: name one in {variable}=/path/to/python{version}."
    )


def _make_distribution(venv: Path, version: str) -> None:
    (package,) = venv.glob("lib/python*/site-packages/pyspark")
    home = venv.parent / "distribution"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    for name in ("bin", "sbin", "jars"):
        (home / name).symlink_to(package / name)
    (home / "python").mkdir()
    (home / "python" / "lib").symlink_to(package / "python" / "lib")
    (home / "RELEASE").write_text(f"Spark {version} built for Hadoop 3\n", encoding="utf-8")
