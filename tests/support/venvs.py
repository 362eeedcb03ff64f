"""Environments beside `.venv`, each in a folder of its own below `.streambank`, filled the first time.

What is fetched is named with its hashes (tests/matrix/locks).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.paths import ROOT

LOCKS = ROOT / "tests" / "matrix" / "locks"
_UV = ROOT / ".boot" / "bin" / "uv"
_DONE = ".done"


def version_of(python: str, *, check: bool = True) -> str:
    """Which Python an interpreter is, such as `3.11`; empty where it does not run and `check` is False."""
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout.strip()


def filled_venv(
    folder: Path, lock: Path, python: str, *more: str | Path, then: Callable[[Path], None] = lambda _: None
) -> Path:
    """The interpreter of an environment that has what a lock names, and nothing else.

    Args:
        folder: Where it is, in `venv`.
        lock: What it has; when it changes, the environment is made again.
        more: Arguments of `uv pip install`, for what comes from this checkout; installed again when
            pyproject.toml changes, which names entry points.
        then: What else has to be made of the environment's folder, once.
    """
    venv = folder / "venv"
    own = venv / "bin" / "python"
    done = folder / _DONE
    files = (lock, ROOT / "pyproject.toml") if more else (lock,)
    state = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several test workers may want the same one
        known = done.read_text(encoding="utf-8").split() if done.exists() else []
        if known == state:
            return own
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        cache = str(ROOT / ".boot" / "cache")
        environment = {**os.environ, "UV_CACHE_DIR": cache, "TMPDIR": str(temporary)}

        def uv(*arguments: str | Path) -> None:
            subprocess.run([_UV, *arguments], env=environment, cwd=ROOT, check=True)

        if known[:1] != state[:1]:
            uv("venv", "--quiet", "--clear", "--python", python, venv)
            uv("pip", "sync", "--quiet", "--python", own, "--require-hashes", lock)
            then(venv)
        if more:
            uv("pip", "install", "--quiet", "--python", own, *more)
        shutil.rmtree(temporary)
        done.write_text("\n".join(state), encoding="utf-8")
    return own
