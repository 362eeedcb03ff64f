"""A Python of this one's version with nothing installed, for executors that have only what comes along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def make_bare_python(folder: Path) -> Path:
    """Make an interpreter with the standard library alone, and return its path."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix) / "bin" / name
    subprocess.run([str(base), "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    return folder / "bin" / "python"
