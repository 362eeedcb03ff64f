"""docs/reference/cli.md names every verb, and of each verb every option and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from streambank.cli.app import app
from tests.support.declared_commands import declared_commands
from tests.support.paths import ROOT
from tests.support.reference_pages import with_options

PAGE = ROOT / "docs/reference/cli.md"
COMMON = {"--json", "--debug", "--help", "-h"}


def commands(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    """Every verb, and the options that only some verbs have."""
    inner = getattr(command, "commands", None)
    if inner is None:
        options = {option for each in command.params for option in each.opts + each.secondary_opts}
        yield name, {option for option in options if option.startswith("-")} - COMMON
        return
    for verb, each in inner.items():
        yield from commands(each, f"{name} {verb}")


def documented() -> dict[str, set[str]]:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for section in sections:
        heading, _, body = section.partition("\n")
        verb = re.match(r"streambank(?: [a-z][a-z-]*)*", heading)
        assert verb is not None, heading
        rows = re.findall(r"^\| (`-.*?) \| ", body, re.MULTILINE)
        found[verb[0]] = {option for row in rows for option in re.findall(r"`(-[-a-z]*)", row)}
    return found


def test_every_verb_and_option_is_documented() -> None:
    own = dict(commands(typer.main.get_command(app), "streambank"))
    for entry in declared_commands():
        own |= commands(typer.main.get_command(entry.load()), f"streambank {entry.name.replace('.', ' ')}")
    assert documented() == own


def test_options_that_requests_declare_are_there_in_their_words() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_options(page), "write them by `python -m tests.support.reference_pages`"
