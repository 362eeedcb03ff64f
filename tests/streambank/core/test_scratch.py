"""Tables that go to the disk where they are large."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.core import scratch
from streambank.core.errors import StorageError
from streambank.core.scratch import DistinctNames, Scratch, blob, name_of
from tests.support.refuses import refuses

NAMED = "CREATE TABLE named (name BLOB, size)"


def test_where_the_rows_fail_none_of_them_stays() -> None:
    tables = Scratch(NAMED)
    tables.fill("named", [(b"first", 1)])

    def broken() -> Iterator[tuple[bytes, int]]:
        yield b"second", 2
        raise ValueError("cut off")

    with pytest.raises(ValueError, match="cut off"):
        tables.fill("named", broken())
    assert [*tables.rows("SELECT * FROM named")] == [(b"first", 1)]


@pytest.mark.parametrize("name", ["a", "", "\0", "ä/\U0001f600", os.fsdecode(b"latin-\xe4")])
def test_every_file_name_comes_back(name: str) -> None:
    assert name_of(blob(name)) == name
    assert [*map(DistinctNames([name]).__getitem__, range(1))] == [name]


@pytest.mark.parametrize("memory_bytes", [scratch.MEMORY_BYTES, 4096])
def test_distinct_names_stay_in_their_order(monkeypatch: pytest.MonkeyPatch, memory_bytes: int) -> None:
    monkeypatch.setattr(scratch, "MEMORY_BYTES", memory_bytes)
    names = DistinctNames(f"{number * 7919 % 1000}-{'x' * 100}" for number in range(3000))
    assert len(names) == 1000
    assert [names[place] for place in range(5)] == [
        f"{number * 7919 % 1000}-{'x' * 100}" for number in range(5)
    ]
    with pytest.raises(IndexError):
        names[1000]


def test_nothing_is_left_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    monkeypatch.setattr(scratch, "MEMORY_BYTES", 4096)
    gc.collect()  # what other tests have left open is closed before, and not meanwhile
    before = open_files()
    tables = Scratch(NAMED)
    tables.fill("named", ((b"x" * 1000, number) for number in range(1000)))
    assert len(open_files()) == len(before) + 1, "it has outgrown its memory"
    assert [*tmp_path.iterdir()] == [], "and its file has no name, so that no crash leaves one"
    del tables
    gc.collect()
    assert open_files() == before


def open_files() -> list[str]:
    return sorted(one.name for one in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("variable", ["SQLITE_TMPDIR", "TMPDIR"])
def test_a_full_disk_is_an_error_of_the_environment_that_names_the_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.delenv("SQLITE_TMPDIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    tables = Scratch(NAMED)
    tables.run("PRAGMA max_page_count = 3")
    with refuses(StorageError, "disk-full", match=f"temporary directory {tmp_path} ", hint="TMPDIR"):
        tables.fill("named", ((b"x" * 1000, number) for number in range(1000)))


def test_a_directory_that_cannot_be_written_to_is_passed_over_as_sqlite_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path / "none"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert scratch._directory() == str(tmp_path)
