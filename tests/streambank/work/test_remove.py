"""Removing a directory: in order, with what no listing shows, and no further than it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.core.errors import ConflictError, RefusedError
from streambank.storage import open_store
from streambank.storage.memory import MemoryStore
from streambank.work.remove import remove_tree
from tests.support.storage.faulty_store import FaultyStore

NAMES = ("b", "commits/1", "metadata", "state/0/1", "z/last")


def deleted(first: tuple[str, ...], last: tuple[str, ...]) -> list[str]:
    base = MemoryStore()
    for name in NAMES:
        base.write(name, b"xy")
    store = FaultyStore(base)
    assert remove_tree(store, first=first, last=last, check=lambda: None) == (5, 10)
    assert not [*base.list()]
    return [call.key for call in store.calls if call.operation == "delete"]


def test_what_has_to_goes_first_or_last() -> None:
    assert deleted(("commits", "metadata"), ())[:2] == ["commits/1", "metadata"]
    assert deleted((), ("z", "b"))[-2:] == ["z/last", "b"]
    assert deleted(("metad",), ())[0] != "metad", "a part of a name is no folder"


def test_nothing_is_left_of_a_directory(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "empty" / "deep").mkdir(parents=True)
    (top / "state").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"x")
    (top / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", ".file.crc", "state/1.delta"):
        (top / name).write_bytes(b"x")
    remove_tree(open_store(top), check=lambda: None)
    assert not top.exists() and (tmp_path / "elsewhere" / "file").exists(), "a link is not followed"
    assert remove_tree(open_store(top), check=lambda: None) == (0, 0)
    top.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError):
        remove_tree(open_store(top), check=lambda: None)


def test_whoever_may_not_go_on_stops_between_the_parts() -> None:
    store = MemoryStore()
    for name in NAMES:
        store.write(name, b"xy")
    asked = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise ConflictError("lost", code="claim-lost")

    with pytest.raises(ConflictError):
        remove_tree(store, first=("commits",), check=check)
    assert len([*store.list()]) == 4
