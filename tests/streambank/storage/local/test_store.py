"""What only a local disk can do wrong."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from streambank.core.errors import ConflictError, FormatError, NotFoundError, StorageError
from streambank.storage.local import root as local_root
from streambank.storage.local import write as local_write
from streambank.storage.local.store import LocalStore
from tests.support.permissions import as_ordinary_user, open_folder
from tests.support.refuses import refuses


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def temporary_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.name.startswith(".streambank-")]


def test_a_named_pipe_blocks_nobody(store: LocalStore) -> None:
    store.root.mkdir()
    os.mkfifo(store.root / "pipe")

    assert list(store.list()) == []
    with pytest.raises(NotFoundError):
        store.read("pipe")


def test_names_that_cannot_be_used_are_named(store: LocalStore) -> None:
    store.root.mkdir()
    (store.root / "a\nb").write_bytes(b"")
    with pytest.raises(FormatError, match=r"a\\nb"):
        list(store.list())


def test_unfinished_writes_are_never_listed(store: LocalStore) -> None:
    store.write("a/file", b"x")
    (store.root / "a/.streambank-0123.tmp").write_bytes(b"half")

    assert [info.path for info in store.list()] == ["a/file"]
    assert [*store.names("a")] == ["file"]


def test_files_that_vanish_while_listing_are_left_out(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        store.write(f"file{number}", b"x")
    real = os.scandir

    @contextmanager
    def scandir(path: int) -> Iterator[Iterator[os.DirEntry[str]]]:
        with real(path) as entries:
            found = list(entries)
        (store.root / "file1").unlink()
        yield iter(found)

    monkeypatch.setattr(os, "scandir", scandir)
    assert sorted(info.path for info in store.list()) == ["file0", "file2"]


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, error_number: int
) -> None:
    store.write("old", b"old")
    real = os.write
    calls = 0

    def write(descriptor: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(error_number, os.strerror(error_number))
        return real(descriptor, data[: len(data) // 2])  # the kernel may take a part

    monkeypatch.setattr(os, "write", write)
    with refuses(StorageError, "disk-full") as raised:
        store.write("old", b"new and longer")
    assert raised.value.hint
    assert store.read("old") == b"old"
    assert temporary_files(store.root) == []


def test_a_write_that_the_kernel_refuses_midway_leaves_nothing(store: LocalStore) -> None:
    store.write("old", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StorageError) as raised:
            store.write("big", (b"x" * 30_000 for _ in range(10)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.code == "disk-full"
    assert [info.path for info in store.list()] == ["old"]
    assert temporary_files(store.root) == []


def test_no_permission_is_said(tmp_path: Path) -> None:
    with open_folder() as folder:
        store = LocalStore(folder)
        store.write("closed/file", b"x")
        store.write("file", b"x")
        (folder / "file").chmod(0o000)
        (folder / "closed").chmod(0o000)
        calls: list[Callable[[], object]] = [
            lambda: store.read("file"),
            lambda: store.read("closed/file"),
            lambda: store.names("closed"),
            lambda: list(store.list()),
            lambda: store.write("new", b"x"),
            lambda: store.write("new/deep", b"x"),
            lambda: store.delete("file"),
        ]
        (folder / "closed").chmod(0o000)
        folder.chmod(0o555)
        with as_ordinary_user():
            for call in calls:
                with refuses(StorageError, "no-permission") as raised:
                    call()
                assert str(folder) in raised.value.message
        folder.chmod(0o755)
        (folder / "closed").chmod(0o755)
        assert sorted(path.name for path in folder.iterdir()) == ["closed", "file"]


@pytest.mark.parametrize("exclusive", [False, True])
def test_a_directory_in_the_way_is_said(store: LocalStore, exclusive: bool) -> None:
    store.write("a/b", b"x")
    with pytest.raises((StorageError, ConflictError)):
        store.write("a", b"x", exclusive=exclusive)
    with pytest.raises(StorageError):
        store.write("a/b/c", b"x", exclusive=exclusive)
    with pytest.raises(StorageError):
        store.delete("a")
    assert temporary_files(store.root) == []


def test_without_hard_links_an_exclusive_write_still_has_one_winner(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    store.write("f", b"first", exclusive=True)
    with pytest.raises(ConflictError):
        store.write("f", b"second", exclusive=True)
    assert store.read("f") == b"first"
    store.rename("f", "g")
    assert [info.path for info in store.list()] == ["g"]
    assert not store.link_from(store, "g", "h")


def test_a_rename_that_was_cut_off_is_finished_by_the_next(store: LocalStore) -> None:
    store.write("a", b"x")
    os.link(store.root / "a", store.root / "b")  # where a crash leaves it

    store.rename("a", "b")

    assert [info.path for info in store.list()] == ["b"]


def test_a_held_file_shows_that_it_was_written_to(store: LocalStore) -> None:
    store.write("f", b"x")
    with closing(store.hold("f")) as held:
        with (store.root / "f").open("ab") as writer:
            writer.write(b"y")
        assert held.current() != held.info
        store.write("f", b"replaced")
        with held.open() as reader:
            assert reader.read() == b"xy"


def test_a_held_reader_seeks(store: LocalStore) -> None:
    store.write("f", b"0123456789")
    with closing(store.hold("f")) as held, held.open() as reader:
        reader.seek(4)
        assert reader.read(2) == b"45"
        reader.seek(-2, os.SEEK_END)
        assert reader.read() == b"89"
        reader.seek(0)
        reader.seek(3, os.SEEK_CUR)
        assert reader.read(1) == b"3"


def read_all(store: LocalStore, call: str, key: str) -> bytes:
    """Bytes of a file in one of the four ways in which they are read."""
    if call == "read":
        return store.read(key, 0, 10)
    if call == "hold":
        with closing(store.hold(key)) as held, held.open() as reader:
            return reader.read(10)
    with store.open(key) as reader:
        return bytes(reader.readline() if call == "lines" else reader.read(10))


READING = ["read", "open", "lines", "hold"]


@pytest.mark.parametrize("call", READING)
def test_a_bad_place_of_the_disk_is_said(call: str) -> None:
    with refuses(StorageError, "io-error"):
        read_all(LocalStore("/proc/self"), call, "mem")  # nothing is mapped at its beginning: EIO


@pytest.mark.parametrize("call", READING)
def test_a_file_that_another_machine_removed_is_gone(
    store: LocalStore, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(*_: object) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    store.write("f", b"x")
    with closing(store.hold("f")) as held, monkeypatch.context() as patch:
        patch.setattr(os, "pread", stale)
        patch.setattr(os, "preadv", stale)
        with pytest.raises(NotFoundError):
            read_all(store, call, "f")
        patch.setattr(os, "fstat", stale)
        with pytest.raises(NotFoundError):
            held.current()


def test_a_directory_that_cannot_be_synced_is_said(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(directory: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store.write("a/f", b"x")
    monkeypatch.setattr(local_root, "sync_directory", broken)
    calls: list[Callable[[], object]] = [
        lambda: store.write("a/f", b"y"),
        lambda: store.write("a/new", b"y", exclusive=True),
        lambda: store.write_named([b"y"], lambda: "a/named"),
        lambda: store.rename("a/f", "a/g"),
        lambda: store.link_from(store, "a/g", "a/h"),
    ]
    for call in calls:
        with refuses(StorageError, "io-error"):
            call()


def test_a_copy_without_the_kernels_help_is_left_to_the_caller(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSYS, "not here")

    store.write("a", b"x")
    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(fcntl, "ioctl", refuse)
    assert not store.copy_from(store, "a", "b")
    assert [info.path for info in store.list()] == ["a"]


def test_of_many_processes_one_creates(tmp_path: Path) -> None:
    program = """
import sys
from streambank.core.errors import ConflictError
from streambank.storage.local.store import LocalStore
store = LocalStore(sys.argv[1])
sys.stdin.readline()
won = []
for number in range(30):
    try:
        store.write(f"race/{number}", [sys.argv[2].encode()] * 100, exclusive=True)
        won.append(number)
    except ConflictError:
        pass
print(*won)
"""
    provider = Path(local_write.__file__).parents[2]
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "root"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(provider)},
        )
        for name in "abcd"
    ]
    answers = []
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        out, _ = racer.communicate(timeout=60)
        assert racer.returncode == 0
        answers.append({int(number) for number in out.split()})
    assert sum(map(len, answers)) == 30
    store = LocalStore(tmp_path / "root")
    for name, won in zip("abcd", answers, strict=True):
        for number in won:
            assert store.read(f"race/{number}") == name.encode() * 100
