"""`streambank programs`, and that nobody is sent to a path that only a checkout has."""

from __future__ import annotations

import re
from pathlib import Path

from streambank.driver.installed import PROGRAMS
from tests.support.cli import streambank, succeed
from tests.support.paths import ROOT

_ONLY_IN_A_CHECKOUT = re.compile(r"(?<!tests/)(?<!streambank_airflow/)(?<!\(\.\./\.\./)\bspark_jobs/")
"""A link of a page may lead there: the pages are where the programs are, in a checkout or the sources."""


def test_each_program_is_shown_with_its_path_and_what_it_is_for() -> None:
    shown = succeed("programs").out.splitlines()
    assert shown == [
        line
        for name, purpose in PROGRAMS.items()
        for line in (f"{name}: {purpose}", f"  {succeed('programs', name).out.strip()}")
    ]
    assert {one["name"] for one in succeed("programs", "--json").document["programs"]} == PROGRAMS.keys()
    known = {path.stem for path in (ROOT / "spark_jobs").iterdir() if not path.name.startswith("_")}
    assert PROGRAMS.keys() == known


def test_a_name_prints_a_path_that_is_there_and_nothing_else() -> None:
    for name in PROGRAMS:
        (path,) = succeed("programs", name).out.splitlines()
        assert Path(path).exists()
    unknown = streambank("programs", "run_job")
    assert unknown.code == 2 and "run_query" in unknown.err


def test_no_hint_and_no_page_names_a_path_that_only_a_checkout_has() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "provider").rglob("*.py")]
    found = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in pages
        for line in page.read_text().splitlines()
        if _ONLY_IN_A_CHECKOUT.search(line)
    ]
    assert not found
