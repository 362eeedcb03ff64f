"""The wheel in clean environments: the command line, the operators, and the Spark jobs that it carries."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import streambank
from streambank_airflow.get_provider_info import get_provider_info
from tests.support.paths import ROOT
from tests.support.wheels import bare_environment, built_wheel, run, site_packages, whole_environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_environment(wheel, tmp_path_factory.mktemp("whole") / "venv")


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bare_environment(wheel, tmp_path_factory.mktemp("bare") / "venv")


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
    assert "airflow_provider_streambank/example_dags/savepoint_before_batch.py" in names
    for file in ("grafana.json", "alerts.yml", "statsd_mapping.yml"):
        assert f"streambank_airflow/metrics/{file}" in names
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
    assert "docs/images" not in text, "a picture that cannot be shown there"
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


@pytest.mark.storm
def test_the_airflow_face_works_from_the_wheel(whole: Path, tmp_path: Path) -> None:
    said = run([str(whole / "bin" / "python"), "-W", "ignore", "-c", OPERATORS], tmp_path)
    for place in json.loads(said.splitlines()[-1]):
        assert Path(place).is_relative_to(whole), f"{place} is not the wheel's"


@pytest.mark.storm
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


@pytest.mark.storm
def test_people_test_their_dags_by_the_wheel_alone(whole: Path, tmp_path: Path) -> None:
    for folder in ("dags", "tests"):
        shutil.copytree(ROOT / "examples" / folder, tmp_path / folder)
    python = str(whole / "bin" / "python")
    said = run([python, "-m", "pytest", "-q", "tests", "-k", "runs_again_where"], tmp_path)
    assert "1 passed" in said


@pytest.mark.airflow
def test_airflow_shows_the_provider(whole: Path, tmp_path: Path) -> None:
    python = str(whole / "bin" / "python")
    said = run(
        [python, "-m", "airflow", "providers", "get", "airflow-provider-streambank", "-o", "json"], tmp_path
    )
    (shown,) = json.loads(said[said.index("[") :])
    assert shown["Provider"] == "airflow-provider-streambank"
    assert shown["Version"] == streambank.__version__
