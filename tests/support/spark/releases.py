"""Spark of other releases than the installed one, each in a folder of its own below `.streambank`.

What is fetched is named with its hashes (tests/matrix/locks). A distribution is made of PySpark's wheel,
which holds all of one but the file RELEASE.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

LOCKS = ROOT / "tests" / "matrix" / "locks"
_SPARKS = ROOT / ".streambank" / "sparks"
_UV = ROOT / ".boot" / "bin" / "uv"
_PINNED = re.compile(r"^pyspark==(\S+)", re.MULTILINE)
_DONE = ".done"


@dataclass(frozen=True, slots=True)
class OtherSpark:
    """One of them.

    Attributes:
        version: Such as `3.5.9`.
        python: An interpreter that has its PySpark, and no Streambank.
        home: The same as a distribution.
    """

    version: str
    python: Path
    home: Path


def other_spark(release: str, python: str = sys.executable) -> OtherSpark:
    """The Spark of a release such as `3.5`; fetched and laid out the first time, which takes a minute.

    Args:
        release: The minor release.
        python: The interpreter that its PySpark is installed for.

    Raises:
        subprocess.CalledProcessError: It could not be installed.
    """
    lock = LOCKS / f"spark-{release}.lock"
    pinned = _PINNED.search(lock.read_text(encoding="utf-8"))
    assert pinned is not None, f"{lock} names no pyspark"
    folder = _SPARKS / f"{pinned[1]}-{_version_of(python)}"
    with _locked(folder):
        if not (folder / _DONE).exists():
            _install(lock, folder, python, pinned[1])
    return OtherSpark(pinned[1], folder / "venv" / "bin" / "python", folder / "distribution")


def python310() -> str:
    """A Python 3.10, the oldest that drivers run on.

    Raises:
        AssertionError: This machine has none.
    """
    for name in (os.environ.get("PYTHON310"), "python3.10"):
        path = shutil.which(name) if name else None
        if path is not None and _version_of(path, check=False) == "3.10":
            return path
    raise AssertionError("`make test-matrix` needs a Python 3.10: name one in PYTHON310=/path/to/python3.10.")


def _version_of(python: str, *, check: bool = True) -> str:
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout.strip()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time: several test workers may want the same one."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(lock: Path, folder: Path, python: str, version: str) -> None:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "UV_CACHE_DIR": str(ROOT / ".boot" / "cache"),
        "TMPDIR": str(temporary),
    }

    def uv(*arguments: str | Path) -> None:
        subprocess.run([_UV, *arguments], env=environment, check=True)

    venv = folder / "venv"
    uv("venv", "--quiet", "--clear", "--python", python, venv)
    uv("pip", "sync", "--quiet", "--python", venv / "bin" / "python", "--require-hashes", lock)
    (package,) = venv.glob("lib/python*/site-packages/pyspark")
    home = folder / "distribution"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    for name in ("bin", "sbin", "jars"):
        (home / name).symlink_to(package / name)
    (home / "python").mkdir()
    (home / "python" / "lib").symlink_to(package / "python" / "lib")
    (home / "RELEASE").write_text(f"Spark {version} built for Hadoop 3\n", encoding="utf-8")
    shutil.rmtree(temporary)
    (folder / _DONE).touch()
