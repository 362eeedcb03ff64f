"""Every verb stands under a heading that says what it is for, and a verb of another tool leads to ours."""

from __future__ import annotations

import pytest
import typer

from streambank.cli.app import app
from streambank.cli.plugins import JobGroup, Verbs
from tests.support.cli import streambank, succeed
from tests.support.declared_commands import install_commands


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install_commands(monkeypatch)


def test_every_verb_has_a_heading_and_no_heading_has_another_verb() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, Verbs)
    context = typer.Context(group)
    assert set(group.list_commands(context)) == set(Verbs.panels)
    jobs = group.get_command(context, "job")
    assert set(jobs.list_commands(typer.Context(jobs))) == set(JobGroup.panels)


@pytest.mark.parametrize("group", [(), ("job",)])
def test_the_help_shows_no_other_heading(group: tuple[str, ...]) -> None:
    shown = succeed(*group, "--help").out
    headings = [line.split("─")[1].strip() for line in shown.splitlines() if line.startswith("╭─")]
    assert headings == ["Options", *dict.fromkeys((JobGroup if group else Verbs).panels.values())]


def test_a_verb_that_another_package_adds_stands_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = typer.Typer(add_completion=False)
    extra.command()(lambda: None)
    monkeypatch.setattr("streambank.cli.plugins._added", lambda: ["wash"])
    monkeypatch.setattr("streambank.cli.plugins._load", lambda name: typer.main.get_command(extra))
    assert "─ Added by other packages ─" in succeed("--help").out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("savepoint orders", "job savepoint"),
        ("start orders", "job start"),
        ("erase b1", "state erase"),
        ("rollback", "restore SAVEPOINT --sink rollback"),
        ("backup ck", "take"),
        ("job run orders", "job start"),
    ],
)
def test_a_verb_that_is_elsewhere_is_named(words: str, meant: str) -> None:
    answer = streambank(*words.split())
    assert answer.code == 2 and f"Did you mean '{meant}'?" in answer.err


def test_a_group_that_is_loaded_offers_no_completion_of_its_own() -> None:
    assert "completion" not in succeed("state", "--help").out
