"""A clone on a bare Debian: README's own line of packages is all that the suite and the demo need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bare.debian import BareDebian
from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(3 * 3600)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> BareDebian:
    return BareDebian.make(tmp_path_factory.mktemp("debian") / "pristine")


@pytest.fixture
def debian(pristine: BareDebian, tmp_path: Path) -> Iterator[BareDebian]:
    yield pristine.copy(tmp_path / "root")


def packages() -> str:
    """README's line."""
    found = re.search(r"`(apt-get install [^`]+)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1].replace("apt-get install", "apt-get install --yes --quiet")


def test_a_person_with_the_packages_of_the_readme_plays_the_demo_and_passes_the_suite(
    debian: BareDebian, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    assert debian.run(f"apt-get update --quiet && {packages()}", log, root=True) == 0, log.read_text()[-5000:]
    assert debian.run("make demo && make test", log) == 0, log.read_text()[-20000:]
    assert debian.run('test -z "$(git status --porcelain)"', log) == 0, log.read_text()[-2000:]


def test_ci_installs_what_it_needs(debian: BareDebian, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert debian.run("bash .ci/run", log, root=True) == 0, log.read_text()[-20000:]
