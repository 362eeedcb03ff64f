"""An environment with the wheel, everything that is here, and OpenLineage's provider beside it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.venvs import LOCKS
from tests.support.wheels import UV, whole_environment


def openlineage_environment(wheel: Path, folder: Path) -> Path:
    """Such an environment. What is added is fetched by its hashes."""
    whole_environment(wheel, folder)
    install = [str(UV), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    python = ["--python", str(folder / "bin" / "python")]
    environment = {**os.environ, "UV_CACHE_DIR": str(UV.parent.parent / "cache")}
    lock = ["--requirement", str(LOCKS / "openlineage.lock")]
    subprocess.run([*install, *python, *lock], check=True, env=environment)
    return folder
