"""The files of the page: what is vendored is what it was; nothing reaches outside, or runs text."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from streambank.overview.html import STANDS_FOR
from streambank_airflow.page.files import static_files
from tests.support.page.modules import AIRFLOW, FILE, SHARED, VENDORED, own_files, own_modules

EVERY = (AIRFLOW, SHARED, FILE)
MODULES = own_modules(*EVERY)
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
    (path,) = (folder / name for folder in EVERY if (folder / name).exists())
    assert sha256(path.read_bytes()).hexdigest() == VENDORED[name]


def test_each_module_of_ours_has_its_types_checked() -> None:
    assert all(path.read_text(encoding="utf-8").startswith("// @ts-check\n") for path in MODULES)


@pytest.mark.parametrize("path", [*MODULES, SHARED / "uPlot.esm.js"], ids=lambda path: path.name)
def test_no_module_runs_text_or_makes_it_markup(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert not [words for words in RUNS_TEXT if words in text]


@pytest.mark.parametrize("path", own_files(*EVERY), ids=lambda path: path.name)
def test_nothing_reaches_outside(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert not re.findall(r"""(?:["'`(]|@import\s)\s*(?:https?:)?//[a-z]""", text), "an address elsewhere"


@pytest.mark.parametrize(("folders", "served"), [((AIRFLOW, SHARED), True), ((SHARED, FILE), False)])
def test_modules_import_one_another_and_all_of_them_are_there(
    folders: tuple[Path, ...], served: bool
) -> None:
    names = {path.name for folder in folders for path in folder.iterdir()}
    instead = {} if served else dict.fromkeys(STANDS_FOR, "source.js")
    imported = {"main.js"}
    for path in own_modules(*folders):
        text = path.read_text(encoding="utf-8")
        found = re.findall(r'^(?:import|export) .*"([^"]+)";$', text, re.MULTILINE)
        assert all(one.startswith("./") for one in found), f"{path.name} imports {found}"
        imported |= {instead.get(name, name) for name in (one.removeprefix("./") for one in found)}

    assert imported <= names
    assert {name for name in names if name.endswith(".js")} <= imported, "a module that nothing loads"
    if served:
        assert names == set(static_files()), "a file that Airflow does not serve"


@pytest.mark.parametrize("folders", [(AIRFLOW, SHARED), (SHARED, FILE)])
def test_names_that_a_module_imports_are_exported(folders: tuple[Path, ...]) -> None:
    """A browser refuses the whole page where one is missing."""
    exported = {path.name: _exports(path.read_text(encoding="utf-8")) for path in own_modules(*folders)}
    for path in own_modules(*folders):
        text = path.read_text(encoding="utf-8")
        for names, name in re.findall(r'import \{([^}]+)\} from "\./([^"]+)"', text):
            wanted = {one.strip() for one in names.split(",") if one.strip()}
            source = name if name in exported else "source.js"
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

    main = (AIRFLOW / "main.js").read_text(encoding="utf-8")
    assert set(re.findall(r'globalThis\["([^"]+)"\] =', main)) == {NAV, CARD, TAB}
