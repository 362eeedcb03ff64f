"""The wheel, installed in clean environments: the command line, the operators, and the Spark jobs it carries.

No network: one environment sees the dependencies installed here, the other only what the command line needs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import streambank
from streambank_airflow.get_provider_info import get_provider_info

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".boot" / "bin" / "uv"
ENGINE_NEEDS = ("blake3", "rich", "typer")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as a release is."""
    folder = tmp_path_factory.mktemp("dist")
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


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and all its dependencies: those of this one, seen from there.

    A path in a `.pth` file adds that folder alone and not what `.pth` files in it add: no checkout is seen.
    """
    folder = environment_with(wheel, tmp_path_factory.mktemp("whole") / "venv")
    site_packages(folder).joinpath("dependencies.pth").write_text(f"{site_packages(Path(sys.prefix))}\n")
    return folder


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what the command line needs: neither Airflow nor Spark, nor boto3."""
    folder = environment_with(wheel, tmp_path_factory.mktemp("bare") / "venv")
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


def run(command: list[str], cwd: Path, expect: int = 0) -> str:
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "AIRFLOW_HOME")
    answer = subprocess.run(
        command,
        cwd=cwd,
        env={name: os.environ[name] for name in kept if name in os.environ}
        | {"NO_COLOR": "1", "UV_CACHE_DIR": str(UV.parent.parent / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == expect, f"{command}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


def test_it_holds_its_packages_and_the_spark_jobs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    dist_info = {top for top in tops if top.endswith(".dist-info")}
    assert tops - dist_info == {
        "airflow_provider_streambank",
        "streambank",
        "streambank_spark",
        "streambank_airflow",
    }
    assert "airflow_provider_streambank/example_dags/prove_savepoint.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    source = {
        f"streambank_airflow/spark_jobs/{path.relative_to(ROOT / 'spark_jobs').as_posix()}"
        for path in (ROOT / "spark_jobs").rglob("*.py")
    }
    assert source <= set(names)
    for package in tops - dist_info:
        assert f"{package}/py.typed" in names


def test_its_description_has_no_dead_link_and_its_provider_info_no_page_of_another_project(
    wheel: Path,
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        described = message_from_bytes(archive.read(name))
    text = str(described.get_payload())
    assert described["Description-Content-Type"] == "text/markdown"
    assert "# Streambank" in text and "(`docs/tutorial.md`)" in text
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert [one for one in targets if not one.startswith(("https://", "#"))] == []
    assert "external-doc-url" not in str(get_provider_info())


def test_the_command_line_works_with_neither_airflow_nor_spark(bare: Path, tmp_path: Path) -> None:
    command = str(bare / "bin" / "streambank")
    assert run([command, "--version"], tmp_path).strip() == f"streambank {streambank.__version__}"
    assert "take" in run([command, "--help"], tmp_path)
    (tmp_path / "nothing").mkdir()
    run([command, "inspect", "nothing"], tmp_path, expect=3)
    python = str(bare / "bin" / "python")
    run([python, "-c", "import airflow"], tmp_path, expect=1)
    run([python, "-c", "import pyspark"], tmp_path, expect=1)


OPERATORS = """
import importlib, json, pathlib
import streambank, streambank_airflow
from streambank_airflow.get_provider_info import get_provider_info
info = get_provider_info()
for kind in ("hooks", "operators", "sensors", "triggers"):
    for group in info.get(kind, ()):
        for module in group["python-modules"]:
            importlib.import_module(module)
for connection in info["connection-types"]:
    module, _, name = connection["hook-class-name"].rpartition(".")
    getattr(importlib.import_module(module), name)
print(json.dumps([streambank.__file__, streambank_airflow.__file__]))
"""


def test_the_airflow_face_works_from_the_wheel(whole: Path, tmp_path: Path) -> None:
    said = run([str(whole / "bin" / "python"), "-W", "ignore", "-c", OPERATORS], tmp_path)
    for place in json.loads(said.splitlines()[-1]):
        assert Path(place).is_relative_to(whole), f"{place} is not the wheel's"


def test_a_launch_from_the_wheel_finds_the_spark_jobs_that_it_carries(whole: Path, tmp_path: Path) -> None:
    code = """
from streambank.driver.installed import find_installation
found = find_installation()
print(found.entry, found.spark_submit, found.python_path, sep="\\n")
"""
    said = run([str(whole / "bin" / "python"), "-c", code], tmp_path).splitlines()
    entry, spark_submit, python_path = said
    assert Path(entry) == site_packages(whole) / "streambank_airflow" / "spark_jobs" / "run_query.py"
    assert Path(entry).is_file() and Path(spark_submit).is_file()
    assert run([str(whole / "bin" / "streambank"), "programs", "run_query"], tmp_path).strip() == entry
    assert python_path == "()", "an installed package needs no help to be found"


@pytest.mark.airflow
def test_airflow_shows_the_provider(whole: Path, tmp_path: Path) -> None:
    python = str(whole / "bin" / "python")
    said = run(
        [python, "-m", "airflow", "providers", "get", "airflow-provider-streambank", "-o", "json"], tmp_path
    )
    (shown,) = json.loads(said[said.index("[") :])
    assert shown["Provider"] == "airflow-provider-streambank"
    assert shown["Version"] == streambank.__version__
