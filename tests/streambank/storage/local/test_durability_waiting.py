"""Names that wait for the end of a bulk: never before the bytes are durable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streambank.core.errors import StorageError
from streambank.storage.local import durability
from streambank.storage.local.durability import FEW
from streambank.storage.local.store import LocalStore


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced and named, in order."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def path_of(descriptor: int) -> str:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())

    def named(old: str, new: str, **where: int) -> None:
        replace(old, new, **where)
        if not new.startswith(".streambank"):
            seen.append(f"name {path_of(where['dst_dir_fd'])}/{new}")

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        path = path_of(descriptor)
        seen.append("bytes" if "/.streambank-" in path else f"names {path}")

    def all_synced(descriptor: int) -> bool:
        seen.append("everything")
        return True

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    monkeypatch.setattr(durability, "_sync_file_system", all_synced)
    return seen


def temporaries(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".streambank*")]


def test_bytes_then_names_then_directories(tmp_path: Path, steps: list[str]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with LocalStore(root).bulk() as files:
        files.write_named([b"1"], lambda: "a/1")
        files.write_named([b"2"], lambda: "a/2")
        files.write_named([b"no"], lambda: None)
        assert steps == []
        assert not (root / "a").exists() and len(temporaries(root)) == 2
    assert steps == [
        *["bytes"] * 2,
        *[f"name {root}/a/1", f"name {root}/a/2"],
        *[f"names {root}", f"names {root}/a"],
    ]
    assert (root / "a/1").read_bytes() == b"1"
    assert temporaries(root) == []


def test_many_are_synced_together(tmp_path: Path, steps: list[str]) -> None:
    with LocalStore(tmp_path).bulk() as files:
        for number in range(FEW + 1):
            files.write_named([b"x"], lambda number=number: f"{number}/x")  # type: ignore[misc]  # a default
    assert steps[0] == steps[-1] == "everything"
    assert sum(step.startswith("name ") for step in steps) == FEW + 1 == len(steps) - 2


def test_the_last_of_one_name_counts(tmp_path: Path) -> None:
    with LocalStore(tmp_path).bulk() as files:
        for data in (b"first", b"last"):
            files.write_named([data], lambda: "f")
    assert (tmp_path / "f").read_bytes() == b"last"
    assert temporaries(tmp_path) == []


def test_an_error_leaves_nothing(tmp_path: Path, steps: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), LocalStore(tmp_path).bulk() as files:
        files.write_named([b"x"], lambda: "f")
        raise ZeroDivisionError
    assert steps == []
    assert list(tmp_path.iterdir()) == []


def test_a_child_and_plain_writes_beside(tmp_path: Path) -> None:
    with LocalStore(tmp_path).bulk() as files:
        files.child("a").write_named([b"x"], lambda: "b/c")
        files.write("plain", b"y")
        assert (tmp_path / "plain").exists() and not (tmp_path / "a/b").exists()
    assert (tmp_path / "a/b/c").read_bytes() == b"x"


def test_what_cannot_be_synced_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(StorageError) as raised, LocalStore(tmp_path).bulk() as files:
        files.write_named([b"x"], lambda: "f")
        monkeypatch.setattr(os, "fsync", broken)
    assert raised.value.code == "io-error"
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    with LocalStore(tmp_path).bulk() as files, pytest.raises(Exception, match="cannot name a file"):
        files.write_named([b"x"], lambda: "../f")
    assert list(tmp_path.iterdir()) == []
