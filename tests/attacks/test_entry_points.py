"""A package on this host adds a verb of a name that is ours, or is only there: nothing of it is loaded."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.cli import streambank


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with verbs called like ours, and one of its own: once loaded they write this file."""
    mark = tmp_path / "loaded"
    info = tmp_path / "evil-1.dist-info"
    info.mkdir()
    names = ("take", "list", "job", "sla", "job.start", "job.list", "ls", "wash")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[streambank.commands]\n" + "".join(f"{name} = evil_verbs:app\n" for name in names), encoding="utf-8"
    )
    (tmp_path / "evil_verbs.py").write_text(
        f"import pathlib, typer\npathlib.Path({str(mark)!r}).touch()\n"
        "app = typer.Typer(add_completion=False)\n\n@app.command()\n"
        "def wash() -> None:\n    print('washed')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evil_verbs", raising=False)
    assert {one.name for one in metadata.entry_points(group="streambank.commands")} >= {*names}
    return mark


@pytest.mark.parametrize(
    "words",
    [
        ["take", "--help"],
        ["list", "--help"],
        ["list", "-r", "memory://entry-points"],
        ["job", "--help"],
        ["job", "list", "--help"],
        ["job", "start", "--help"],
        ["sla", "--help"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_a_verb_of_ours_is_ours(loaded: Path, words: list[str]) -> None:
    answer = streambank(*words)
    assert answer.code in (0, 3) and "washed" not in answer.out
    assert not loaded.exists()


def test_what_is_no_verb_of_ours_is_asked_of_packages(loaded: Path) -> None:
    """The negative control: the package is really there, and its own verb is loaded when it is asked for."""
    answer = streambank("wash")
    assert answer.code == 0 and loaded.exists()
