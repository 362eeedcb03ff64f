"""What each package may load: looked at in clean interpreters, since this one has everything in it."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROVIDER = ROOT / "provider"
SDKS = {"boto3", "botocore", "fsspec", "pandas", "pyarrow"}
HEAVY = SDKS | {"airflow", "pendulum", "py4j", "pyspark", "sqlalchemy"}
# Libraries of the command line and of the s3 store: loaded by these modules only.
LAZY = {"typer", "rich", "click"}
PACKAGES = ("streambank", "streambank_airflow", "streambank_spark")
STORIES = {
    "streambank/cli/test_plain_pyspark.py",
    "streambank/cli/test_reference.py",
    "streambank/cli/test_reference_json.py",
    "streambank/doctor/test_reference.py",
    "streambank/job/test_second_driver.py",
    "streambank/kafka/test_real_broker.py",
    "streambank/kafka/test_real_login.py",
    "streambank/repository/test_format_page.py",
    "streambank/retention/test_state_machine.py",
    "streambank_airflow/hooks/test_parts.py",
    "streambank_airflow/hooks/test_reference.py",
    "streambank_airflow/page/test_actions_storm.py",
    "streambank_airflow/page/test_hostile_storm.py",
    "streambank_airflow/page/test_judging_storm.py",
    "streambank_airflow/page/test_page_storm.py",
    "streambank_airflow/page/test_plots_storm.py",
    "streambank_airflow/page/test_static.py",
    "streambank_airflow/sensors/test_modes.py",
    "streambank_airflow/test_imports.py",
    "streambank_airflow/test_logging.py",
    "streambank_airflow/test_own_jobs.py",
    "streambank_airflow/test_reference.py",
    "streambank_airflow/triggers/test_triggerer.py",
    "streambank_spark/commands/test_reference_json.py",
    "streambank_spark/commands/test_state_verbs.py",
    "streambank_spark/runner/test_exactly_once.py",
    "streambank_spark/runner/test_exactly_once_after_kill.py",
    "streambank_spark/runner/test_exactly_once_controls.py",
}
"""Tests that are about no single module of their room: what several do together, or a page of the docs."""


def modules_of(package: str) -> list[str]:
    names = []
    for path in sorted((PROVIDER / package).rglob("*.py")):
        parts = list(path.relative_to(PROVIDER).with_suffix("").parts)
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def is_command_line(module: str) -> bool:
    return module == "streambank.__main__" or module.startswith("streambank.cli")


def clean_python(code: str, *arguments: str) -> str:
    """Run code in an interpreter of its own, in a place where nothing of the project lies about."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        env=environment | {"PYTHONPATH": str(PROVIDER)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def loaded_by(*modules: str, after: str = "") -> set[str]:
    """Top-level names of what importing these modules adds to a clean interpreter."""
    code = f"""
import importlib, json, sys
{after}
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    return set(json.loads(clean_python(code, *modules).splitlines()[-1]))


def top_level(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


def test_the_engine_loads_neither_airflow_nor_spark_nor_the_libraries_of_its_edges() -> None:
    engine = [name for name in modules_of("streambank") if not is_command_line(name)]
    assert len(engine) > 5
    loaded = top_level(loaded_by(*engine))
    assert not loaded & (HEAVY | LAZY), loaded & (HEAVY | LAZY)
    foreign = {name for name in loaded - sys.stdlib_module_names if not name.startswith("_")}
    assert foreign <= {"streambank", "blake3"}, foreign


def test_verbs_of_the_spark_face_load_without_spark() -> None:
    verbs = [name for name in modules_of("streambank_spark") if name.startswith("streambank_spark.commands")]
    assert len(verbs) > 4
    loaded = top_level(loaded_by(*verbs))
    assert not loaded & HEAVY, loaded & HEAVY


def test_what_submits_work_loads_without_spark() -> None:
    """The Spark that does it need not be installed here."""
    submits = ("streambank_spark.submit.executor", "streambank_spark.submit.state_change")
    requests = ("streambank_spark.change.request", "streambank_spark.rewrite.key_places")
    loaded = top_level(loaded_by(*submits, *requests))
    assert not loaded & HEAVY, loaded & HEAVY


@pytest.mark.storm
def test_every_engine_module_can_be_the_first_one_imported() -> None:
    code = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "streambank"]:
        del sys.modules[loaded]
    importlib.import_module(name)
print("ok")
"""
    clean_python(code, *[name for name in modules_of("streambank") if name != "streambank.__main__"])


def test_help_of_the_command_line_costs_python_and_typer_alone() -> None:
    code = """
import json, sys
import typer
before = set(sys.modules)
from streambank.__main__ import main
sys.argv = ["streambank", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    loaded = set(json.loads(clean_python(code).splitlines()[-1]))
    assert not top_level(loaded) & HEAVY
    ours = {name for name in loaded if name.partition(".")[0] == "streambank"}
    assert not {name for name in ours if name.startswith(("streambank.storage", "streambank.checkpoint"))}
    assert len(ours) <= 54, sorted(ours)


@pytest.mark.slow
def test_the_airflow_face_adds_only_its_own_modules_to_a_dag_parse() -> None:
    faces = [name for name in modules_of("streambank_airflow") if ".plugin" not in name]
    assert len(faces) > 3
    code = """
from airflow.sdk import DAG, BaseHook, BaseOperator, BaseSensorOperator, Param, task
import airflow.providers.standard.operators.hitl
import airflow.triggers.base
"""
    loaded = top_level(loaded_by(*faces, after=code))
    assert not loaded & {"boto3", "botocore", "pandas", "py4j", "pyarrow", "pyspark", "typer", "rich"}
    assert not loaded & {"streambank_spark"}


def test_operators_of_the_spark_provider_are_not_loaded_by_the_airflow_face() -> None:
    loaded = loaded_by(*[name for name in modules_of("streambank_airflow") if ".plugin" not in name])
    # Airflow itself reads what every installed provider says about itself.
    told = {"airflow.providers.apache.spark", "airflow.providers.apache.spark.get_provider_info"}
    assert not {name for name in loaded if name.startswith("airflow.providers.apache.spark")} - told


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
    return found


def test_nothing_imports_spark_jobs_or_dags() -> None:
    for path in PROVIDER.rglob("*.py"):
        assert not top_level(imports_of(path)) & {"spark_jobs", "dags", "demo", "bench", "tests"}, path


def test_streaming_applications_know_nothing_of_streambank() -> None:
    for path in (ROOT / "spark_jobs" / "flights").glob("*.py"):
        foreign = {name for name in imports_of(path) if name.startswith("streambank")}
        assert not foreign, f"{path}: {foreign}"


def test_no_folder_shadows_an_installed_package() -> None:
    for folder in ("provider", "spark_jobs", "dags", "tests", "demo", "bench"):
        for path in (ROOT / folder).rglob("*"):
            assert not (path.is_dir() and path.name in {"airflow", "pyspark"}), path


def test_a_public_class_name_has_one_meaning() -> None:
    names = Counter(
        node.name
        for path in PROVIDER.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(names) > 500
    assert [name for name, count in names.items() if count > 1] == []


def test_the_rooms_of_the_contributing_page_are_those_that_the_linter_knows() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    floors = [set(re.findall(r"\w+", floor)) for floor in reversed(layers)]
    rows = re.findall(r"^\| (`.*`) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    rooms = [room for row in rows for room in re.findall(r"`(\w+)`", row)]
    assert len(rooms) == len(set(rooms)) > 20
    listed = iter(rooms)
    assert [set(itertools.islice(listed, len(floor))) for floor in floors[:-1]] == floors[:-1]
    assert list(listed) == [] and floors[-1] == {"__main__"}


def test_tests_of_a_module_are_where_the_module_is() -> None:
    """`a/b.py` is tested by `a/test_b.py` and `a/test_b_<aspect>.py`; stories across modules are listed.

    What holds for a folder `a/b` as a whole may be tested by `a/test_b.py`, too.
    """
    tests = ROOT / "tests"
    strangers = set()
    for path in (path for package in PACKAGES for path in (tests / package).rglob("test_*.py")):
        room = PROVIDER / path.parent.relative_to(tests)
        modules = {module.stem.removesuffix("_") for module in room.glob("*.py")}
        modules |= {folder.parent.name for folder in room.glob("*/__init__.py")}
        words = path.stem.removeprefix("test_").split("_")
        if not modules & {"_".join(words[:count]) for count in range(1, len(words) + 1)}:
            strangers.add(path.relative_to(tests).as_posix())
    assert strangers == STORIES
