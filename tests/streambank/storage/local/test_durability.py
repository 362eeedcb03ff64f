"""What a local store syncs, and when, if many files are written together."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.core.errors import IntegrityError, StorageError
from streambank.storage.local import durability
from streambank.storage.local.store import LocalStore


def path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


class Disk:
    """Records what is synced, and fails on order; nothing really reaches the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[str] = []
        self.broken = ""
        monkeypatch.setattr(os, "fsync", lambda descriptor: self._sync("fsync", descriptor))
        self._patch = monkeypatch

    def knows_syncfs(self, judge: Callable[[str], bool] = lambda path: True) -> None:
        """`syncfs` works for the directories for which `judge` says so."""

        def sync(descriptor: int) -> bool:
            able = judge(path_of(descriptor))
            if able:
                self._sync("syncfs", descriptor)
            return able

        self._patch.setattr(durability, "_sync_file_system", sync)

    def _sync(self, call: str, descriptor: int) -> None:
        path = path_of(descriptor)
        self.synced.append(f"{call} {path}")
        if self.broken and path.endswith(self.broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "root").mkdir()
    return LocalStore(tmp_path / "root")


def test_files_in_bulk_are_synced_once_at_the_end(store: LocalStore, disk: Disk) -> None:
    disk.knows_syncfs()
    with store.bulk() as files:
        assert store.features.fsync
        assert not files.features.fsync
        for number in range(20):
            files.write(f"state/{number}/1.delta", b"x")
        files.child("state").write("new", b"x", exclusive=True)
        files.link_from(files, "state/new", "linked")
        assert disk.synced == []
    assert disk.synced == [f"syncfs {store.root}"]


def test_without_syncfs_every_file_and_directory_is_synced(store: LocalStore, disk: Disk) -> None:
    disk.knows_syncfs(lambda path: False)
    with store.bulk() as files:
        files.write("a/b/1", b"x")
        files.write("2", b"x")
        (store.root / "link").symlink_to("nowhere")
        os.mkfifo(store.root / "pipe")
    expected = {f"fsync {store.root}{below}" for below in ("", "/a", "/a/b", "/a/b/1", "/2")}
    assert sorted(disk.synced) == sorted(expected)


def test_the_root_is_made_durably_before_the_first_write(tmp_path: Path, disk: Disk) -> None:
    disk.knows_syncfs()
    with LocalStore(tmp_path / "new").bulk() as files:
        assert disk.synced == [f"fsync {tmp_path}"]
        files.write("f", b"x")
    assert disk.synced[1:] == [f"syncfs {tmp_path}/new"]


def test_nothing_is_synced_after_an_error(store: LocalStore, disk: Disk) -> None:
    disk.knows_syncfs()
    with pytest.raises(ZeroDivisionError), store.bulk() as files:
        files.write("f", b"x")
        raise ZeroDivisionError
    assert disk.synced == []


def test_a_store_that_promises_nothing_syncs_nothing(tmp_path: Path, disk: Disk) -> None:
    disk.knows_syncfs()
    with LocalStore(tmp_path / "quick", fsync=False).bulk() as files, files.bulk() as inner:
        inner.write("f", b"x")
    assert disk.synced == []


def test_names_of_others_are_settled_with_the_folders_above(store: LocalStore, disk: Disk) -> None:
    for path in ("a/b", "c"):
        (store.root / path).mkdir(parents=True)
    store.settle_names(["a/b", "a", "gone/far"])
    assert sorted(disk.synced) == [f"fsync {store.root}{below}" for below in ("", "/a", "/a/b")]
    disk.synced.clear()
    LocalStore(store.root, fsync=False).settle_names(["a/b"])
    assert disk.synced == []


@pytest.mark.parametrize(("syncfs", "broken"), [(True, "root"), (False, "a/1"), (False, "/a")])
def test_what_did_not_reach_the_disk_is_an_error(
    store: LocalStore, disk: Disk, syncfs: bool, broken: str
) -> None:
    disk.knows_syncfs(lambda path: syncfs)
    disk.broken = broken
    with pytest.raises(StorageError) as raised, store.bulk() as files:
        files.write("a/1", b"x")
    assert raised.value.code == "io-error"


def test_a_view_follows_links_no_further_than_its_store(store: LocalStore, tmp_path: Path) -> None:
    store.write("shared/f", b"x")
    child = store.child("child")
    child.write("f", b"x")
    (child.root / "inside").symlink_to(store.root / "shared")
    (child.root / "outside").symlink_to(tmp_path)
    with child.bulk() as files:
        files.write("inside/g", b"y")
        with pytest.raises(IntegrityError):
            files.write("outside/g", b"y")
    assert store.read("shared/g") == b"y"


class Library:
    """A C library whose answers are given."""

    def __init__(self, kind: int, failure: int = 0) -> None:
        self.kind = kind
        self.failure = failure
        self.calls = 0

    def fstatfs(self, descriptor: int, answer: list[int]) -> int:
        answer[0] = self.kind
        return 0

    def syncfs(self, descriptor: int) -> int:
        self.calls += 1
        ctypes.set_errno(self.failure)
        return -1 if self.failure else 0


@pytest.mark.parametrize(("kind", "calls"), [(0xEF53, 1), (0x58465342, 1), (0x65735546, 0), (0x794C7630, 0)])
def test_syncfs_is_trusted_only_where_it_reaches_the_disk(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, kind: int, calls: int
) -> None:
    """Ext4 and XFS, not FUSE and overlays."""
    library = Library(kind)
    monkeypatch.setattr(durability, "_c_library", lambda: library)
    with store.bulk() as files:
        files.write("a/b/c", b"x")
    assert library.calls == calls


def test_a_failed_syncfs_names_the_reason(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "_c_library", lambda: Library(0xEF53, errno.ENOSPC))
    with pytest.raises(StorageError) as raised, store.bulk() as files:
        files.write("f", b"x")
    assert raised.value.code == "disk-full"


@pytest.mark.parametrize(
    ("sysname", "release", "trusted"),
    [
        ("Linux", "5.8.0", True),
        ("Linux", "6.18.44-generic", True),
        ("Linux", "5.7.19", False),
        ("Linux", "odd", False),
        ("Darwin", "23.1.0", False),
    ],
)
def test_syncfs_is_trusted_only_where_it_reports_errors(
    monkeypatch: pytest.MonkeyPatch, sysname: str, release: str, trusted: bool
) -> None:
    system = os.uname_result((sysname, "host", release, "", ""))
    monkeypatch.setattr(os, "uname", lambda: system)
    durability._c_library.cache_clear()
    try:
        assert (durability._c_library() is not None) == trusted
    finally:
        durability._c_library.cache_clear()


def test_the_disk_begins_with_large_files_of_a_bulk_at_once(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    advise = os.posix_fadvise

    def advised(descriptor: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        begun.append(os.fstat(descriptor).st_size)
        advise(descriptor, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", advised)
    large = b"x" * 300_000
    with store.bulk() as files:
        files.write("small", b"x")
        assert begun == []
        files.write("large", large)
        assert begun == [len(large)]
    store.write("at-once", large)  # is synced by itself
    LocalStore(store.root / "quick", fsync=False).write("large", large)  # is never synced
    assert begun == [len(large)]
    assert store.read("large") == large


def test_files_are_synced_at_the_same_time(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3, timeout=30)
    monkeypatch.setattr(durability, "_sync_file_system", lambda descriptor: False)

    def sync(descriptor: int) -> None:
        if "/.streambank-" in path_of(descriptor):
            together.wait()  # nobody gets past it alone

    monkeypatch.setattr(os, "fsync", sync)
    with store.bulk() as files:
        for number in range(3):
            files.write_named([b"x"], lambda number=number: str(number))  # type: ignore[misc]  # a default
    assert not together.broken
    assert store.names() == ["0", "1", "2"]


def test_one_of_several_files_that_cannot_be_synced_is_an_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def sync(descriptor: int) -> None:
        asked.append(path_of(descriptor))
        if os.fstat(descriptor).st_size == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(durability, "_sync_file_system", lambda descriptor: False)
    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(StorageError) as raised, store.bulk() as files:
        for size_bytes in (1, 2, 3):
            files.write_named([b"x" * size_bytes], lambda number=size_bytes: str(number))  # type: ignore[misc]
    assert raised.value.code == "io-error"
    assert asked and store.names() == []
