"""A jobs file that is as it was is parsed once in a process."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from streambank.core.errors import InputError
from streambank.declaration.load import read_jobs
from streambank_airflow.hooks import declared
from streambank_airflow.hooks.streambank import StreambankHook
from tests.support.jobs.declared import write_jobs
from tests.support.waiting import poll


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were parsed, in order."""
    found: list[str] = []

    def load(path: Any, **how: Any) -> Any:
        found.append(str(path))
        return read_jobs(path, **how)

    monkeypatch.setattr(declared, "read_jobs", load)
    return found


def test_it_is_parsed_once_for_all_hooks(tmp_path: Path, parsed: list[str]) -> None:
    file = str(write_jobs(tmp_path))
    jobs = [StreambankHook(jobs_file=file).declared.job("flights") for _ in range(3)]
    assert parsed == [file]
    assert jobs[0] is jobs[2]


def test_a_change_of_the_same_size_counts_at_once(tmp_path: Path, parsed: list[str]) -> None:
    file = write_jobs(tmp_path, "one")
    assert declared.remembered_jobs(str(file)).job("flights").args == ("one",)
    write_jobs(tmp_path, "two")
    assert declared.remembered_jobs(str(file)).job("flights").args == ("two",)
    assert len(parsed) == 2


def test_a_variable_and_the_place_behind_a_link_count(
    tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for one in ("a", "b"):
        write_jobs(tmp_path / one, "${WHICH}")
    link = tmp_path / "jobs.toml"
    link.symlink_to(tmp_path / "a" / "streaming_jobs.toml")
    monkeypatch.setenv("WHICH", "first")
    found = declared.remembered_jobs(str(link)).job("flights")
    assert (found.args, found.checkpoint) == (("first",), f"file://{tmp_path}/a/checkpoints/flights")
    monkeypatch.setenv("WHICH", "second")
    assert declared.remembered_jobs(str(link)).job("flights").args == ("second",)
    link.unlink()
    link.symlink_to(tmp_path / "b" / "streaming_jobs.toml")
    assert declared.remembered_jobs(str(link)).job("flights").checkpoint.endswith("/b/checkpoints/flights")


def test_a_file_that_is_wrong_is_an_error_each_time(tmp_path: Path, parsed: list[str]) -> None:
    file = write_jobs(tmp_path)
    declared.remembered_jobs(str(file))
    file.write_text("[jobs", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(InputError, match="not valid TOML"):
            declared.remembered_jobs(str(file))
    file.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        declared.remembered_jobs(str(file))


def test_a_file_that_is_wrong_is_parsed_once_until_it_changes(tmp_path: Path, parsed: list[str]) -> None:
    """A thousand watches ask for it until somebody repairs it."""
    file = write_jobs(tmp_path)
    right = file.read_text(encoding="utf-8")
    file.write_text(right + "\n[jobs.flights.start]\ntimeout = 3\n", encoding="utf-8")
    errors = []
    for _ in range(3):
        with pytest.raises(InputError) as caught:
            declared.remembered_jobs(str(file)).job("flights")
        errors.append(caught.value)
    assert len(parsed) == 1
    assert errors[0].code == "bad-declaration"
    assert [one.to_dict() for one in errors] == [errors[0].to_dict()] * 3
    assert len({id(one) for one in errors}) == 3, "each with the traceback of who asked"

    file.write_text(right, encoding="utf-8")
    assert "flights" in declared.remembered_jobs(str(file)).jobs
    file.write_text("[jobs", encoding="utf-8")
    with pytest.raises(InputError, match="not valid TOML"):
        declared.remembered_jobs(str(file))
    assert len(parsed) == 3


def test_an_error_counts_for_half_a_minute_where_the_file_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has no descriptor left for a moment, or a link beside the file."""
    file = str(write_jobs(tmp_path))
    fired = []

    def load(path: Any, **how: Any) -> Any:
        fired.append(path)
        raise InputError("It cannot be read: Too many open files.", code="no-declaration", hint="")

    monkeypatch.setattr(declared, "read_jobs", load)
    now = [1_000.0]
    monkeypatch.setattr("streambank_airflow.hooks.declared.time.monotonic", lambda: now[0])
    for _ in range(2):
        with pytest.raises(InputError, match="Too many open files"):
            declared.remembered_jobs(file)
    assert fired == [file]
    monkeypatch.setattr(declared, "read_jobs", read_jobs)
    now[0] += 31
    assert "flights" in declared.remembered_jobs(file).jobs
    now[0] += 3_600
    monkeypatch.setattr(declared, "read_jobs", load)
    assert "flights" in declared.remembered_jobs(file).jobs, "what is right counts until it changes"


def test_a_file_that_cannot_be_read_is_tried_each_time(tmp_path: Path, parsed: list[str]) -> None:
    file = tmp_path / "streaming_jobs.toml"
    for _ in range(2):
        with pytest.raises(InputError, match="cannot be read"):
            declared.remembered_jobs(str(file))
    write_jobs(tmp_path)
    assert "flights" in declared.remembered_jobs(str(file)).jobs


def test_a_file_on_a_storage_that_hangs_holds_up_no_other_one(tmp_path: Path) -> None:
    """A pipe that has no writer: to open it takes until there is one."""
    hangs = tmp_path / "hangs.toml"
    os.mkfifo(hangs)
    ended: list[str] = []

    def ask(file: Path) -> None:
        with suppress(InputError):
            declared.remembered_jobs(str(file))
        ended.append(file.name)

    def answer() -> bool:
        with suppress(OSError):  # nothing reads just now
            os.close(os.open(hangs, os.O_WRONLY | os.O_NONBLOCK))
        return "hangs.toml" in ended

    stuck = Thread(target=ask, args=(hangs,), daemon=True)
    stuck.start()
    file = write_jobs(tmp_path)
    other = Thread(target=ask, args=(file,), daemon=True)
    other.start()
    try:
        poll(lambda: file.name in ended, timeout_s=30)
        assert ended == [file.name], "the other one still hangs"
    finally:
        poll(answer, timeout_s=30)
        stuck.join()
        other.join()


def test_of_many_files_the_last_ones_are_remembered(tmp_path: Path, parsed: list[str]) -> None:
    files = []
    for number in range(9):
        (tmp_path / str(number)).mkdir()
        files.append(str(write_jobs(tmp_path / str(number))))
    for file in (*files, files[-1], files[1], files[0]):
        declared.remembered_jobs(file)
    assert parsed == [*files, files[0]]
