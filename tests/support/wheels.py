"""The wheel, and clean environments that have it. No network.

One kind of them sees the dependencies installed here, the other has only what the command line needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

UV = ROOT / ".boot" / "bin" / "uv"
ENGINE_NEEDS = ("blake3", "rich", "typer")


def built_wheel(folder: Path) -> Path:
    """The wheel, built as a release is."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    run(command, folder)
    (built,) = folder.glob("*.whl")
    return built


def environment_with(wheel: Path, folder: Path) -> Path:
    """An empty virtual environment with nothing but the wheel."""
    run([str(UV), "venv", "--quiet", "--offline", "--python", sys.executable, str(folder)], folder.parent)
    install = [str(UV), "pip", "install", "--quiet", "--offline", "--no-deps"]
    run([*install, "--python", str(folder / "bin" / "python"), str(wheel)], folder.parent)
    return folder


def whole_environment(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel and all its dependencies: those of this one, seen from there.

    A path in a `.pth` file adds that folder alone and not what `.pth` files in it add: no checkout is seen.
    """
    environment_with(wheel, folder)
    site_packages(folder).joinpath("dependencies.pth").write_text(f"{site_packages(Path(sys.prefix))}\n")
    return folder


def airflow_without_pyspark(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel and what requirements.lock names, from which PySpark was uninstalled."""
    environment_with(wheel, folder)
    python = ["--python", str(folder / "bin" / "python")]
    install = [str(UV), "pip", "install", "--quiet", "--offline", "--no-deps", "--require-hashes", *python]
    run([*install, "--requirement", str(ROOT / "requirements.lock")], folder.parent)
    run([str(UV), "pip", "uninstall", "--quiet", *python, "pyspark", "pyspark-client"], folder.parent)
    return folder


def bare_environment(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel and what the command line needs: neither Airflow nor Spark, nor boto3."""
    environment_with(wheel, folder)
    for name in needed_by(ENGINE_NEEDS):
        for file in metadata.distribution(name).files or ():
            top = file.parts[0]
            target = site_packages(folder) / top
            if top not in {"..", "__pycache__"} and not target.exists():
                target.symlink_to(site_packages(Path(sys.prefix)) / top)
    return folder


def needed_by(names: tuple[str, ...]) -> set[str]:
    """Distributions and all that they ask for."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found.add(name)
        asked = [Requirement(text) for text in metadata.requires(name) or ()]
        waiting += [one.name for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def clean_environment() -> dict[str, str]:
    """Variables of a process that must not see this test's."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "AIRFLOW_HOME", "SPARK_LOCAL_IP")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "NO_COLOR": "1",
        "UV_CACHE_DIR": str(UV.parent.parent / "cache"),
    }


def run(
    command: Sequence[str | Path], cwd: Path, expect: int = 0, variables: Mapping[str, str] | None = None
) -> str:
    """What a command says that has to end so."""
    answer = subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment() | dict(variables or {}),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert answer.returncode == expect, f"{command}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout
