"""Launchers of other packages, installed as distributions in a separate folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "ssh_launcher"
_BUILD = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
_SSH = '#!/bin/sh\n[ -e "{down}" ] && exit 255\nshift\nexec sh -c "$*"\n'


def install_example(folder: Path) -> Path:
    """Build the wheel of the example, and install it: a wheel of pure Python is a zip of what is installed.

    Returns:
        The folder to have on the path.
    """
    source = shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-c", _BUILD, str(folder)]
    done = subprocess.run(build, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    place = folder / "site"
    zipfile.ZipFile(folder / done.stdout.split()[-1]).extractall(place)
    return place


def install(folder: Path, package: str, code: str, **entries: str) -> Path:
    """A distribution of one module of the same name, which registers launchers.

    Args:
        folder: Where it goes, and what to have on the path.
        entries: The launchers it registers: the name, and the object in the module.
    """
    folder.mkdir(exist_ok=True)
    (folder / f"{package}.py").write_text(code, encoding="utf-8")
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {package}:{what}\n" for name, what in entries.items())
    (info / "entry_points.txt").write_text(f"[streambank.launchers]\n{lines}")
    return folder


def fake_ssh(folder: Path) -> Path:
    """An ssh to this very machine; while the file `down` is beside it, no machine can be reached."""
    ssh = folder / "ssh"
    ssh.write_text(_SSH.format(down=folder / "down"))
    ssh.chmod(0o755)
    return ssh
