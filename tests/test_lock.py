"""requirements.lock: hashed, without any address, and what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NAME = canonicalize_name(PROJECT["project"]["name"])


OLDER_AIRFLOWS = sorted((ROOT / "tests" / "matrix" / "locks").glob("airflow-*.lock"))


def locked(lock: str = LOCK) -> dict[str, list[tuple[Requirement, int]]]:
    """Every pinned requirement (a package may be pinned once per marker) with the number of its hashes."""
    found: dict[str, list[tuple[Requirement, int]]] = {}
    logical = lock.replace("\\\n", " ").splitlines()
    for line in logical:
        text = line.split("#")[0].strip()
        if not text:
            continue
        pinned = Requirement(text.split("--hash=")[0].strip())
        found.setdefault(canonicalize_name(pinned.name), []).append((pinned, text.count("--hash=sha256:")))
    return found


def wanted(groups: Collection[str] = PROJECT["dependency-groups"]) -> list[Requirement]:
    """What pyproject.toml asks for, with some of its groups."""
    project = PROJECT["project"]
    texts = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        texts += extra
    for group in groups:
        texts += PROJECT["dependency-groups"][group]
    return [Requirement(text) for text in texts]


def test_every_pin_has_a_version_and_hashes() -> None:
    pins = locked()
    assert len(pins) > 100
    for name, entries in pins.items():
        for pinned, hashes in entries:
            assert re.fullmatch(r"==[^*]+", str(pinned.specifier)), pinned
            assert pinned.url is None
            assert hashes > 0, f"{name} has no hash"


def test_it_names_no_address_and_no_place_of_one_machine() -> None:
    for word in ("://", "--index-url", "--extra-index-url", "--find-links", "--trusted-host", " @ "):
        assert word not in LOCK, word


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_every_dependency_is_pinned_within_its_limits(requirement: Requirement) -> None:
    entries = locked()[canonicalize_name(requirement.name)]
    for pinned, _ in entries:
        (specifier,) = pinned.specifier
        assert requirement.specifier.contains(Version(specifier.version)), (requirement, pinned)


@pytest.mark.parametrize("lock", OLDER_AIRFLOWS, ids=lambda path: path.stem)
def test_an_older_airflow_is_locked_with_what_the_project_asks_for(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    pins = locked(text)
    assert "://" not in text and "pyspark-client" not in pins
    assert all(hashes > 0 for entries in pins.values() for _, hashes in entries)
    for requirement in wanted(("demo", "test", "build")):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name} is not in {lock.name}: run make lock-matrix"
        for pinned, _ in pins[name]:
            (specifier,) = pinned.specifier
            assert requirement.specifier.contains(Version(specifier.version)), (requirement, pinned)


def test_spark_comes_from_one_package_only() -> None:
    """The client package writes into the same folder as pyspark, in another version."""
    assert "pyspark-client" not in locked()
    assert PROJECT["tool"]["uv"]["exclude-dependencies"] == ["pyspark-client"]
    assert [str(pinned.specifier) for pinned, _ in locked()["pyspark"]] == ["==4.3.0"]
    assert "pyspark-client" not in {canonicalize_name(found.name) for found in metadata.distributions()}


def test_this_environment_holds_what_the_lock_names() -> None:
    pins = locked()
    for found in metadata.distributions():
        name = canonicalize_name(found.name)
        if name == NAME:
            continue
        assert name in pins, f"{name} is installed but not in requirements.lock: run make setup"
        versions = {str(pinned.specifier).removeprefix("==") for pinned, _ in pins[name]}
        assert found.version in versions, f"{name} {found.version} is installed, the lock has {versions}"
