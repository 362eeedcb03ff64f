"""The files of the page: what is vendored is what it was; nothing reaches outside, or runs text."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from streambank_airflow.page.files import static_files
from tests.support.paths import ROOT

STATIC = ROOT / "provider" / "streambank_airflow" / "page" / "static"
VENDORED = {
    "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""uPlot 1.6.32, under the MIT licence: its files as they were published."""
OWN = sorted(path for path in STATIC.iterdir() if path.name not in VENDORED)
MODULES = [path for path in OWN if path.suffix == ".js"]
RUNS_TEXT = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "dangerouslySetInnerHTML",
    "document.write",
    "eval(",
    "new Function",
)


@pytest.mark.parametrize("name", VENDORED)
def test_a_vendored_file_is_what_was_published(name: str) -> None:
    assert sha256((STATIC / name).read_bytes()).hexdigest() == VENDORED[name]


@pytest.mark.parametrize("path", [*MODULES, STATIC / "uPlot.esm.js"], ids=lambda path: path.name)
def test_no_module_runs_text_or_makes_it_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert not [words for words in RUNS_TEXT if words in text]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_nothing_reaches_outside(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert not re.findall(r"""(?:["'`(]|@import\s)\s*(?:https?:)?//[a-z]""", text), "an address elsewhere"


def test_modules_import_one_another_and_all_of_them_are_served() -> None:
    names = {path.name for path in STATIC.iterdir()}
    imported = {"main.js"}
    for path in MODULES:
        found = re.findall(
            r'^(?:import|export) .*from "([^"]+)";$', path.read_text(encoding="utf-8"), re.MULTILINE
        )
        assert all(one.startswith("./") for one in found), f"{path.name} imports {found}"
        imported |= {one.removeprefix("./") for one in found}

    assert imported <= names
    assert {path.name for path in MODULES} <= imported, "a module that nothing loads"
    assert names == set(static_files()), "a file that Airflow does not serve"


def test_names_that_a_module_imports_are_exported() -> None:
    """A browser refuses the whole page where one is missing."""
    exported = {path.name: _exports(path.read_text(encoding="utf-8")) for path in MODULES}
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        for names, source in re.findall(r'import \{([^}]+)\} from "\./([^"]+)"', text):
            wanted = {one.strip() for one in names.split(",") if one.strip()}
            assert wanted <= exported[source], (
                f"{path.name} imports {wanted - exported[source]} from {source}"
            )
            unused = {one for one in wanted if len(re.findall(rf"\b{one}\b", text)) < 2}
            assert not unused, f"{path.name} does not use {unused}"


def _exports(text: str) -> set[str]:
    found = set(re.findall(r"^export (?:async )?(?:const|let|function|class) (\w+)", text, re.MULTILINE))
    for group in re.findall(r"^export const \{([^}]+)\}", text, re.MULTILINE):
        found |= {one.strip() for one in group.split(",") if one.strip()}
    return found


def test_the_components_have_the_names_that_airflow_asks_for() -> None:
    from streambank_airflow.page.plugin import CARD, NAV, TAB

    main = (STATIC / "main.js").read_text(encoding="utf-8")
    assert set(re.findall(r'globalThis\["([^"]+)"\] =', main)) == {NAV, CARD, TAB}
