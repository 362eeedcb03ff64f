"""Room that is kept beside a job's records for the last words of a driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import StorageError
from streambank.storage.local.reserve import FILE_BYTES, FILES, RESERVE, give_room, keep_reserve
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from tests.support.storage.small_disk import FullStore, small_disk


def reserve(folder: Path) -> list[Path]:
    return sorted((folder / RESERVE).iterdir())


def test_it_is_made_of_files_that_take_room_and_made_whole_again(tmp_path: Path) -> None:
    store = FullStore(tmp_path)
    assert keep_reserve(store) == FILES == len(reserve(tmp_path))
    assert all(path.stat().st_blocks * 512 >= FILE_BYTES for path in reserve(tmp_path))
    assert give_room(store) and len(reserve(tmp_path)) == FILES - 1
    assert keep_reserve(store) == FILES == len(reserve(tmp_path))


def test_records_elsewhere_have_none() -> None:
    assert keep_reserve(MemoryStore()) == 0 and not give_room(MemoryStore())


def test_a_record_on_a_full_disk_takes_one_part_of_it(tmp_path: Path) -> None:
    store = FullStore(tmp_path)
    keep_reserve(store)
    control = JobControl(store, "flights")
    control.record_event("driver-started")
    store.full = True
    control.record_event("killed", why="test")
    assert (control.last_event("killed") or {})["why"] == "test"
    assert len(reserve(tmp_path)) == FILES - 1


def test_nothing_is_removed_where_a_link_leads(tmp_path: Path) -> None:
    store, other = LocalStore(tmp_path / "records"), tmp_path / "other"
    (tmp_path / "records").mkdir()
    other.mkdir()
    (other / "01").write_text("of somebody")
    (tmp_path / "records" / "reserve").symlink_to(other)
    assert keep_reserve(store) == 0 and not give_room(store)
    assert [one.name for one in other.iterdir()] == ["01"]


def test_only_its_own_files_are_removed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "records")
    (tmp_path / "records" / "reserve").mkdir(parents=True)
    (tmp_path / "records" / "reserve" / "notes").write_text("of somebody")
    assert not give_room(store)


def test_a_full_disk_without_one_is_an_error(tmp_path: Path) -> None:
    store = FullStore(tmp_path)
    control = JobControl(store, "flights")
    control.record_event("driver-started")
    store.full = True
    with pytest.raises(StorageError) as refused:
        control.record_event("killed", why="test")
    assert refused.value.code == "disk-full"


def test_once_it_is_used_up_the_disk_is_full(tmp_path: Path) -> None:
    store = FullStore(tmp_path)
    keep_reserve(store)
    control = JobControl(store, "flights")
    control.record_event("first")
    store.full = True
    with pytest.raises(StorageError):
        for _ in range(2 * FILES):
            control.record_event("more")
    assert len(list(control.events())) == FILES + 1 and reserve(tmp_path) == []


@pytest.mark.storm
@pytest.mark.parametrize("files", [None, 200])
def test_a_disk_that_is_really_full(tmp_path: Path, files: int | None) -> None:
    """Of bytes, or of files while it has bytes left."""
    with small_disk(tmp_path / "disk", 64 << 20, files=files) as disk:
        store = FullStore(disk.folder / "job")
        control = JobControl(store, "flights")
        control.record_event("driver-started")
        assert keep_reserve(store) == FILES
        disk.fill() if files is None else disk.use_up_files()
        control.record_event("killed", why="test")
        assert (control.last_event("killed") or {})["why"] == "test"
        assert len(reserve(disk.folder / "job")) < FILES
