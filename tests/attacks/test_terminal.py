"""Notes, records and names of files are written by others, and a terminal obeys what it is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streambank.cli.output import console
from streambank.core.text import visible

CLEARS = "\x1b[2J\x1b]0;owned\x07"
MORE = ("\x9b2J", "\r", "\x08", "\u202e", "\u2066", "\x7f", "\udc9b")


@pytest.mark.parametrize("text", [CLEARS, *MORE])
def test_nothing_that_steers_a_terminal_is_written_to_it(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    console.line(f"note: {text} end")
    console.note(f"hint: {text}\nsecond line")
    console.fields([("note", text)])
    console.table(("id", "note"), [("b1", text)])
    said = capsys.readouterr()
    for stream in (said.out, said.err):
        assert not [one for one in stream if one != "\n" and (visible(one) != one)]
    assert "end" in said.out and said.err.count("\n") == 2


def test_json_says_it_all_by_escapes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.MODE, "answered", False)  # a command of another test may have answered
    document: Any = {"note": CLEARS + "\x9b\u202e", "list": ["a\nb"]}
    console.write_document(document)
    out = capsys.readouterr().out
    assert json.loads(out) == document
    assert not [one for one in out if one != "\n" and not one.isprintable()]


def test_what_people_write_stays_as_it_is() -> None:
    text = "naïve 東京 🙂 a — b “c”"
    assert visible(text) == text
