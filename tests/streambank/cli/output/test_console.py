"""Stdout as it may be: full, closed, not of UTF-8; and still one sentence, one document, one exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streambank.cli.output import console
from streambank.core.errors import StorageError
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.paths import ROOT


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell line in which `streambank` is ours."""
    command = f'streambank() {{ "{sys.executable}" -m streambank "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "provider"), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(3)
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"], ids=["full", "closed"])
@pytest.mark.parametrize("as_json", ["", "--json"])
def test_an_answer_that_cannot_be_written_is_said_and_is_no_finding(
    checkpoint: Path, stdout: str, as_json: str
) -> None:
    said = shell(f"streambank inspect checkpoint {as_json} {stdout}", checkpoint.parent)
    assert said.returncode == StorageError.exit_code
    sentence, hint = said.stderr.splitlines()
    assert sentence.startswith("The answer could not be written to stdout: ")
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"], ids=["full", "closed"])
def test_an_error_keeps_its_exit_code_where_its_document_cannot_be_written(
    tmp_path: Path, stdout: str
) -> None:
    said = shell(f"streambank inspect nothing --json {stdout}", tmp_path)
    assert said.returncode == 3
    assert len(said.stderr.splitlines()) == 2


def test_a_terminal_that_is_not_utf_8_gets_every_character_escaped(checkpoint: Path) -> None:
    take = ("take", checkpoint, "-r", checkpoint.parent / "repository", "--job", "orders")
    succeed(*take, "--note", "größer →")
    plain = shell("streambank list -r repository", checkpoint.parent, PYTHONIOENCODING="ascii")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "gr\\xf6\\xdfer \\u2192" in plain.stdout
    document = shell("streambank list -r repository --json", checkpoint.parent, PYTHONIOENCODING="ascii")
    assert json.loads(document.stdout)[0]["note"] == "größer →"


@pytest.mark.parametrize("arguments", [(), ("job",)])
def test_no_command_shows_the_help_and_one_sentence(arguments: tuple[str, ...]) -> None:
    answer = streambank(*arguments)
    assert answer.code == 2
    assert "Usage:" in answer.out
    command = " ".join(("streambank", *arguments))
    assert answer.err == f"Missing command.\nhint: See `{command} --help`.\n"


def test_a_failure_after_the_document_adds_no_second_one(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = console.answer

    def answer_and_fail(*given: Any) -> None:
        plain(*given)
        raise StorageError("And then the disk failed.", hint="Look at it.")

    monkeypatch.setattr(console, "answer", answer_and_fail)
    answer = streambank("inspect", checkpoint, "--json")
    assert answer.document["last_committed_batch"] == 2
    assert (answer.code, answer.err) == (7, "And then the disk failed.\nhint: Look at it.\n")
