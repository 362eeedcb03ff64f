"""What holds for every command: exit codes, one sentence and a hint, one JSON document, nothing half done."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from streambank.cli import plugins
from streambank.cli.output import console
from streambank.core import errors
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank.storage.local.store import LocalStore
from streambank.work.pace import Step
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.cli import streambank, succeed
from tests.support.paths import ROOT

# A command on a terminal of so many columns: what it draws there.

_STYLES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(command: Sequence[str], folder: Path, environment: Mapping[str, str], columns: int) -> bytes:
    """Run a command on a terminal, and give everything that it draws, with its styles.

    Args:
        command: It and its arguments; it must end with 0.
    """
    main, other = pty.openpty()
    try:
        process = subprocess.Popen(
            command,
            env={**environment, "TERM": "xterm", "COLUMNS": str(columns)},
            cwd=folder,
            stdout=other,
            stderr=other,
        )
        os.close(other)
        said = b""
        while True:
            try:
                part = os.read(main, 4096)
            except OSError:  # how a terminal says that its other end is closed
                break
            if not part:
                break
            said += part
        assert process.wait(timeout=30) == 0, said
    finally:
        os.close(main)
    return said


def plain(said: bytes) -> list[str]:
    """The lines without styles, and without spaces at their ends."""
    return [line.rstrip() for line in _STYLES.sub(b"", said).decode().splitlines()]


VERBS = ["inspect", "take", "list", "show", "verify", "restore", "pin", "unpin", "doctor", "skew", "job"]
VERBS += ["programs"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "streambank", *arguments]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "provider"), **more}


def test_help_names_every_verb_and_every_verb_has_help_with_an_example() -> None:
    shown = succeed("--help").out
    for verb in VERBS:
        assert f" {verb} " in shown
        assert "xample" in succeed(verb, "--help").out or verb == "job"
    for verb in ("start", "stop", "status", "savepoint", "break", "move-records", "sign-records"):
        assert "Example: streambank job" in succeed("job", verb, "--help").out


def test_verbs_stand_under_headings_with_the_most_used_first() -> None:
    shown = succeed("--help").out
    headings = ["Savepoints", "Jobs", "Recovery and change", "Checkpoints and their state", "Repositories"]
    assert [line.split("─")[1].strip() for line in shown.splitlines() if line.startswith("╭─")][
        1:
    ] == headings
    shown = succeed("take", "--help").out
    assert shown.index("--note") < shown.index("Who does the work") < shown.index("--master")
    assert shown.index("--master") < shown.index("─ Output") < shown.index("--json")


@pytest.mark.parametrize(
    ("words", "offered"),
    [("streambank jo", ["job"]), ("streambank job st", ["start", "status", "stop"]),
     ("streambank take --clo", ["--closure"]), ("streambank nothing", [])],
)  # fmt: skip
def test_a_shell_completes_verbs_and_options(words: str, offered: list[str]) -> None:
    asked = {"_STREAMBANK_COMPLETE": "complete_bash", "COMP_WORDS": words}
    said = subprocess.run(
        command(),
        env=environment(**asked, COMP_CWORD=str(len(words.split()) - 1)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(said.stdout.split()) == offered and said.stderr == ""


def test_help_loads_no_engine_module_but_a_few_of_the_core() -> None:
    code = """
import json, sys
from streambank.__main__ import main
sys.argv = ["streambank", "--help"]
main()
print(json.dumps(sorted(name for name in sys.modules if name.partition(".")[0] in ("streambank", "blake3"))))
"""
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    loaded = json.loads(said.stdout.splitlines()[-1])
    foreign = [name for name in loaded if not name.startswith(("streambank.cli", "streambank.__main__"))]
    assert foreign == [
        *("streambank", "streambank.advice", "streambank.advice.request"),
        *(f"streambank.core{one}" for one in ("", ".choices", ".errors", ".last_read", ".options")),
        *(
            f"streambank.core{one}"
            for one in (".restore_choices", ".state_options", ".text", ".verb_options")
        ),
        *("streambank.driver", "streambank.driver.spark_releases"),  # which PySpark the `state` verbs get
    ]


def test_version() -> None:
    from streambank import __version__

    assert succeed("--version").out == f"streambank {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["take"], "Missing argument 'CHECKPOINT'."),
        (["take", "c\udcff", "-r", "r", "--job", "j"], "The argument 'c\\udcff' is not UTF-8."),
        (["take", "c", "--job", "j"], "Missing option '--repository' / '-r' (env var"),
        (["inspect", "c", "--nonsense"], "No such option: --nonsense"),
        (["version"], "No such command 'version'. Did you mean '--version'?\n"),
        (["compact", "c", "--undo"], "Option '--undo' requires an argument."),
        (["nonsense"], "No such command 'nonsense'."),
        (["lst"], "No such command 'lst'. Did you mean 'list'?\n"),
        (["inspect", "c", "--batch", "-1"], "Invalid value for '--batch'"),
        (["verify", "-r", "x"], "Verify needs either a savepoint or --all."),
        (["verify", "b1", "--all", "-r", "x"], "Verify needs either a savepoint or --all."),
    ],
)
def test_a_mistake_in_the_arguments_is_one_sentence_and_a_hint(arguments: list[str], says: str) -> None:
    answer = streambank(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    sentence, hint = answer.err.splitlines()
    assert says in f"{sentence}\n"
    assert hint.startswith(("hint: See `streambank", "hint: Use names in UTF-8", "hint: Name the repository"))


def test_the_hint_of_a_mistake_names_the_help_of_its_verb() -> None:
    assert streambank("compact", "c", "--undo").err.endswith("See `streambank compact --help`.\n")
    assert streambank("job", "stop", "--note").err.endswith("See `streambank job stop --help`.\n")


@pytest.mark.parametrize(
    "kind",
    [
        errors.InputError,
        errors.NotFoundError,
        errors.FormatError,
        errors.IntegrityError,
        errors.ConflictError,
        errors.StorageError,
        errors.RefusedError,
        errors.InternalError,
    ],
)
def test_each_kind_of_error_has_its_exit_code_its_sentence_and_its_document(
    kind: type[errors.StreambankError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise kind("It is broken.", code="some-code", hint="Mend it.")

    monkeypatch.setattr("streambank.checkpoint.reader.CheckpointReader.inspect", fail)
    plain = streambank("inspect", tmp_path)
    assert (plain.code, plain.out, plain.err) == (kind.exit_code, "", "It is broken.\nhint: Mend it.\n")

    with_json = streambank("inspect", tmp_path, "--json")
    assert with_json.code == kind.exit_code
    assert with_json.document["error"] == "some-code"
    assert with_json.document["exit_code"] == kind.exit_code
    assert with_json.err == plain.err

    assert "Traceback" in streambank("inspect", tmp_path, "--debug").err


def test_a_bug_is_exit_code_70_and_a_traceback_only_for_those_who_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("streambank.checkpoint.reader.CheckpointReader.inspect", fail)
    answer = streambank("inspect", tmp_path)
    assert answer.code == 70
    assert answer.err.startswith("Streambank has a bug: ZeroDivisionError: oh\nhint: ")
    assert "Traceback" not in answer.err
    assert "Traceback" in streambank("inspect", tmp_path, "--debug").err
    assert streambank("inspect", tmp_path, "--json").document["error"] == "unexpected"


def test_a_bug_in_a_parser_names_the_file_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "ck")).run(2)

    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("streambank.checkpoint.files.parse_commit", fail)
    answer = streambank("inspect", live.store.uri)
    assert answer.code == 70 and f"it read last: {tmp_path}/ck/commits/" in answer.err, answer.err


def test_a_bug_in_a_thread_names_the_file_that_this_thread_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = LiveCheckpoint(open_store(tmp_path / "ck")).run(3)
    where = ("-r", tmp_path / "repository")
    succeed("take", live.store.uri, *where, "--job", "orders")

    def fail(repository: Repository, *_: Any, **__: Any) -> None:
        repository.store.read("repository.json")
        raise KeyError("planted")

    monkeypatch.setattr("streambank.work.check.damaged_objects", fail)
    answer = streambank("verify", "latest", *where, "--level", "full")
    assert answer.code == 70 and f"it read last: {tmp_path}/repository/repository.json\n" in answer.err


def test_a_usage_error_with_json_is_a_document_too() -> None:
    answer = streambank("take", "--json")
    assert answer.document["error"] == "usage"
    assert answer.document["exit_code"] == answer.code == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_take_leaves_no_savepoint_and_ends_with_its_own_code(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    LiveCheckpoint(open_store(tmp_path / "checkpoint"), state_bytes=1000).run(8)
    reached = tmp_path / "reached"
    slow = f"""
import pathlib, signal, sys, time
import streambank.work.copy as work
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
plain = work.run_task
def slow(*args):
    pathlib.Path({str(reached)!r}).touch()
    time.sleep(0.1)
    return plain(*args)
work.run_task = slow
from streambank.__main__ import main
sys.argv = "streambank take checkpoint -r repository --job orders --parallel 1 --json".split()
sys.exit(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", slow],
        env=environment(),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not reached.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    answered, said = process.communicate(timeout=30)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert (json.loads(answered)["error"], json.loads(answered)["exit_code"]) == ("interrupted", code)
    assert succeed("list", "-r", tmp_path / "repository", "--json").document == []
    taken = succeed(
        "take", tmp_path / "checkpoint", "-r", tmp_path / "repository", "--job", "orders", "--json"
    )
    assert taken.document["batch"] == 7
    assert succeed("verify", "--all", "-r", tmp_path / "repository", "--level", "full", "--json").document[
        "ok"
    ]


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(tmp_path: Path) -> None:
    LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(3)
    line = f"{sys.executable} -m streambank inspect checkpoint --json | head -c 1"
    said = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.stdout, said.stderr) == ("{", "")
    assert said.returncode in (0, 1), "1, for what was found, where the answer fitted into the pipe"


def test_verify_answers_on_a_repository_that_it_cannot_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(3)
    succeed("take", "checkpoint", "-r", "repository", "--job", "orders")

    def read_only(self: LocalStore, key: str, *arguments: Any, **more: Any) -> None:
        raise errors.StorageError(f"{key} cannot be written.", code="read-only", hint="Mount it writable.")

    monkeypatch.setattr(LocalStore, "write", read_only)
    monkeypatch.setattr(LocalStore, "write_named", read_only)
    for level in ("quick", "full"):
        said = succeed("verify", "--all", "-r", "repository", "--level", level)
        assert "ok (" in said.out and "not-recorded" in said.out


def drawn(tmp_path: Path, columns: int, *arguments: str) -> bytes:
    return on_terminal(command(*arguments), tmp_path, environment(), columns)


def test_on_a_terminal_there_are_tables_and_bars(tmp_path: Path) -> None:
    LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(6)
    said = drawn(tmp_path, 120, "take", "checkpoint", "-r", "repository", "--job", "orders")
    assert b"\x1b[" in said and b"copy" in said
    assert b"savepoint b000005-" in said


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 250])
def test_a_narrow_terminal_leaves_out_columns_and_folds_no_id(tmp_path: Path, columns: int) -> None:
    LiveCheckpoint(open_store(tmp_path / "checkpoint")).run(6)
    where = ("checkpoint", "-r", "repository", "--job", "orders")
    took = subprocess.run(
        command("take", *where, "--note", "before the upgrade " * 3, "--json"),
        env=environment(), cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    savepoint = json.loads(took.stdout)
    lines = plain(drawn(tmp_path, columns, "list", "-r", "repository"))
    assert all(len(line) <= columns for line in lines[:-1])
    (row,) = (line for line in lines if savepoint["savepoint"] in line)
    assert "orders" in row
    left_out = [line for line in lines if line.startswith("Not shown at")]
    assert bool(left_out) == (columns < 250)
    if columns == 80:
        assert left_out == ["Not shown at 80 columns: bytes, new, note. --json has everything."]


def test_elsewhere_each_phase_is_a_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress() as progress:
        for done in range(3):
            progress(Step("copy", done, 2, done * 500, 1000))
        progress(Step("check", 1, 1, 5, 5))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "copy: 2/2 files, 1 kB/1 kB\ncheck: 1/1 files, 5 B/5 B\n"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_501, "1 MB"),
        (5 * 10**18, "5,000 PB"),
    ],
)
def test_sizes_for_people(size_bytes: int, text: str) -> None:
    assert console.size(size_bytes) == text


def test_another_package_adds_a_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "more_verbs.py").write_text(
        "import typer\napp = typer.Typer()\n\n\n@app.command()\ndef greet(name: str) -> None:\n"
        '    """Greet."""\n    print("hello", name)\n'
    )
    info = tmp_path / "more_verbs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: more-verbs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[{plugins.COMMANDS_GROUP}]\ngreet = more_verbs:app\nbroken = more_verbs:nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert succeed("greet", "you").out == "hello you\n"
    answer = streambank("broken")
    assert answer.code == 2
    assert "The command broken of more_verbs:nothing does not load" in answer.err
