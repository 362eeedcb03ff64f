from __future__ import annotations

from pathlib import Path

import pytest

from streambank.compaction.moving import Move, move_files, same_bytes
from streambank.core.errors import ConflictError, StorageError
from streambank.storage import CHUNK_BYTES
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from streambank.work.pace import Meter
from tests.support.refuses import refuses
from tests.support.storage.contents import contents
from tests.support.storage.faulty_store import Fault, FaultyStore
from tests.support.storage.interrupting_store import interrupting

FILES = {"offsets/1": b"one", "offsets/2": b"two " * CHUNK_BYTES}


def stored(store: Store) -> Store:
    for key, data in FILES.items():
        store.write(key, data)
    return store


def moves(source: Store) -> list[Move]:
    return [
        Move(key, f"q/{key}", len(data), source.stat(key).identity, in_order=True)
        for key, data in FILES.items()
    ]


def move(source: Store, target: Store, some: list[Move] | None = None) -> int:
    meter = Meter(None, "move", len(FILES), 0)
    return move_files(source, target, some or moves(source), check=lambda: None, meter=meter)


def test_between_services_that_cannot_copy_the_bytes_pass_through_here(tmp_path: Path) -> None:
    source, target = stored(LocalStore(tmp_path, fsync=False)), MemoryStore()
    assert move(source, target) == 0
    assert contents(target) == {f"q/{key}": data for key, data in FILES.items()}
    assert not contents(source)


def test_a_copy_of_another_size_removes_nothing(tmp_path: Path) -> None:
    source = FaultyStore(stored(MemoryStore()), Fault("short-read", operations=frozenset({"open"})))
    with pytest.raises(StorageError, match="has 2 bytes instead of 3"):
        move(source, LocalStore(tmp_path, fsync=False))
    source.assert_fired()
    assert contents(source) == FILES


def test_a_file_that_is_gone_before_it_is_copied_is_counted_and_the_others_move(tmp_path: Path) -> None:
    source = stored(MemoryStore())
    planned = moves(source)
    source.delete("offsets/1")
    target = LocalStore(tmp_path, fsync=False)
    assert move(source, target, planned) == 1
    assert list(contents(target)) == ["q/offsets/2"] and not contents(source)


@pytest.mark.parametrize("again", [b"one", b"another"])
def test_a_file_that_is_written_again_after_its_copy_stays_and_its_copy_goes(
    tmp_path: Path, again: bytes
) -> None:
    inner = stored(LocalStore(tmp_path / "checkpoint", fsync=False))
    target = LocalStore(tmp_path / "quarantine", fsync=False)

    def write() -> None:
        assert "q/offsets/1" in contents(target)
        inner.delete("offsets/1")
        inner.write("offsets/1", again)

    source, asked = interrupting(inner, {3: write})
    with refuses(ConflictError, "checkpoint-moved"):
        move(source, target, moves(inner)[:1])
    assert asked.happened
    assert inner.read("offsets/1") == again and not contents(target)


def test_a_file_that_goes_away_after_its_copy_stays_in_quarantine(tmp_path: Path) -> None:
    inner = stored(LocalStore(tmp_path / "checkpoint", fsync=False))
    target = LocalStore(tmp_path / "quarantine", fsync=False)
    source, asked = interrupting(inner, {3: lambda: inner.delete("offsets/1")})
    assert move(source, target, moves(inner)[:1]) == 0 and asked.happened
    assert contents(target) == {"q/offsets/1": b"one"}


def test_the_same_bytes_are_told_from_others_of_the_same_size(tmp_path: Path) -> None:
    one, other = stored(MemoryStore()), stored(LocalStore(tmp_path, fsync=False))
    for key in FILES:
        assert same_bytes(one, key, other, key)
    other.write("offsets/2", FILES["offsets/2"][:-1] + b"!")
    assert not same_bytes(one, "offsets/2", other, "offsets/2")
    assert not same_bytes(one, "offsets/1", other, "offsets/2")
