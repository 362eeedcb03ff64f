"""What drivers and executors get needs nothing that does not come along."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path

from streambank.driver.bundle import SHIPPED, lay_beside, package_files
from tests.support.paths import ROOT

IMPORTING = """
import importlib, json, sys, zipfile
bundle, packages = sys.argv[1:]
sys.path[:0] = [bundle, packages]
names = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for name in zipfile.ZipFile(bundle).namelist() if name.endswith(".py") and name != "__main__.py"]
loaded = {}
for package in ("streambank", "streambank_spark"):
    for name in names:
        if name.partition(".")[0] == package:
            assert importlib.import_module(name).__file__.startswith(bundle + "/"), name
    loaded[package] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"names": names, "loaded": loaded}))
"""
BESIDE = ("blake3", "py4j", "pyspark")
"""What a cluster has or gets beside the zip."""


def module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_every_shipped_module_is_imported_from_the_zip_alone(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in BESIDE:
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        (packages / name).symlink_to(Path(spec.origin).parent)
    bundle = lay_beside(tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", IMPORTING, str(bundle), str(packages)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["names"]) > 300
    ours = sys.stdlib_module_names | {"__main__", "streambank"}
    assert {name for name in answer["loaded"]["streambank"] if not name.startswith("_")} - ours <= {"blake3"}
    spark = {name for name in answer["loaded"]["streambank_spark"] if not name.startswith("_")}
    assert spark - ours <= {*BESIDE, "streambank_spark"}


def test_what_a_shipped_module_imports_is_shipped_too_in_functions_as_well() -> None:
    files = {module_of(name): path for name, path in package_files().items() if path.suffix == ".py"}
    left_out = set()
    for module, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streambank"):
                named = {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
                left_out |= {(module, node.module)} if not named & files.keys() else set()
            elif isinstance(node, ast.Import):
                named = {name.name for name in node.names if name.name.startswith("streambank")}
                left_out |= {(module, name) for name in named - files.keys()}
    assert not left_out


def test_the_contract_of_the_linter_leaves_out_what_the_zip_leaves_out() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (each for each in contracts["contracts"] if each["name"].startswith("Shipped"))
    provider = ROOT / "provider"
    rooms = {path.parent.name for path in (provider / "streambank").glob("*/__init__.py")}
    left_out = rooms - {shipped.partition("/")[0] for shipped in SHIPPED}
    assert {f"streambank.{room}" for room in left_out} <= set(contract["forbidden_modules"])
    faces = {path.parent.name for path in (provider / "streambank_spark").glob("*/__init__.py")}
    assert {f"streambank_spark.{face}" for face in faces - {"commands", "stand_in"}} <= set(
        contract["source_modules"]
    )
