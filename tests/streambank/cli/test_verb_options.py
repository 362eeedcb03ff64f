"""A verb's parameters, and the fields of its dataclasses, are options of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from streambank.cli.verb_options import Commands
from streambank.core.choices import SinkChoice
from streambank.core.options import Option
from streambank.core.restore_choices import parse_sink_choices

Jobs = Annotated[str | None, typer.Option("--jobs", envvar="TEST_JOBS")]


@dataclass(kw_only=True)
class Subject:
    place: Annotated[str, Option("Where it is.", metavar="PLACE", positional=True)]
    part: Annotated[str | None, Option("Its part.", flag="--part --store")] = None
    sink_of: Annotated[
        Mapping[str, SinkChoice], Option("Of one sink.", metavar="SINK=CHOICE", parse=parse_sink_choices)
    ] = field(default_factory=dict)
    jobs: Jobs = None
    found: int = 7


def look(
    subject: Subject,
    jobs: Annotated[str, typer.Option("--jobs")],
    wait_s: Annotated[float, Option("How long.")] = 90.0,
    tags: Annotated[tuple[str, ...], Option("Tags.", flag="--tag")] = (),
    least: Annotated[int | None, Option("At least.", least=2)] = None,
) -> None:
    print(subject, jobs, wait_s, tags, least)


def answer(*words: str) -> Any:
    app = Commands()
    app.command()(look)
    return CliRunner().invoke(app, [*words], terminal_width=200)


def test_what_is_left_out_has_the_default_of_its_parameter_or_field() -> None:
    said = "Subject(place='here', part=None, sink_of={}, jobs='a.toml', found=7) a.toml 90.0 () None\n"
    assert answer("here", "--jobs", "a.toml").output == said


def test_each_is_read_by_its_type() -> None:
    words = ("--store left", "--sink-of /a=b=accept", "--wait 2m", "--tag x", "--tag y", "--least 3")
    said = answer("here", "--jobs=a", *(word for each in words for word in each.split())).output
    assert "part='left', sink_of={'/a=b': 'accept'}" in said and said.endswith("a 120.0 ('x', 'y') 3\n")


def test_what_a_verb_needs_is_asked_for_though_a_field_of_that_name_has_a_default() -> None:
    assert "Missing option '--jobs'" in answer("here").output
    assert "Missing argument 'PLACE'" in answer("--jobs", "a").output


def test_what_is_not_of_its_type_is_refused() -> None:
    for wrong in ("--least=1", "--wait=soon", "--sink-of=/a=keep"):
        assert answer("here", "--jobs=a", wrong).exit_code != 0


def test_the_help_has_every_option_and_what_each_verb_takes() -> None:
    shown = answer("--help").output
    for option in ("PLACE", "--part", "--store", "SINK=CHOICE", "--tag", "--json", "--debug"):
        assert option in shown
    assert "1m30s" not in shown and "90s" in shown and "Tags. May be repeated." in shown
    assert "--found" not in shown
