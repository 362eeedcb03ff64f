"""What only the stores of fsspec do; the contract itself is in test_contract.py."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest

from streambank.core.errors import ConflictError, FormatError, InputError, NotFoundError, StorageError
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.storage.fsspec import store as fsspec_store
from streambank.storage.fsspec.store import below, info_of
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.support.checkpoint.recorded import unpack
from tests.support.refuses import refuses
from tests.support.storage import fsspec_filesystems
from tests.support.storage.fsspec_filesystems import BLOBS, FILES, Files


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec_filesystems.register()
    monkeypatch.setattr(fsspec_store, "CREATES", fsspec_store.CREATES | {BLOBS})


@pytest.fixture
def files(tmp_path: Path) -> Store:
    """A store on a filesystem that has no exclusive create."""
    return open_store(f"{FILES}:/{tmp_path}/root")


def test_where_no_create_is_exclusive_none_is_tried(files: Store, tmp_path: Path) -> None:
    def never() -> Iterator[bytes]:
        raise AssertionError("asked for bytes")
        yield b""

    for data in (b"x", never()):
        with refuses(InputError, "no-exclusive-create", hint="s3://"):
            files.write("f", data, exclusive=True)
    assert not (tmp_path / "root").exists()
    with refuses(InputError, "no-exclusive-create"):
        Repository.open(files, create=True)

    files.write("a", b"x")
    with pytest.raises(InputError):
        files.rename("a", "b")
    assert [info.path for info in files.list()] == ["a"]


@pytest.mark.parametrize(
    ("error", "kind"), [(FileNotFoundError("gone"), NotFoundError), (RuntimeError("secret"), StorageError)]
)
def test_what_fails_while_a_file_is_read_is_said_in_our_words(
    files: Store, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception]
) -> None:
    class Lazy(io.BytesIO):
        """Opened without a request, as gcsfs and adlfs do."""

        def read(self, size: int | None = -1, /) -> bytes:
            raise error

    files.write("f", b"x")
    monkeypatch.setattr(Files, "open", lambda self, path, mode: Lazy())
    with pytest.raises(kind) as raised, files.open("f") as reader:
        reader.read(10)
    assert "secret" not in str(raised.value)
    with closing(files.hold("f")) as held, pytest.raises(kind), held.open() as reader:
        reader.read()


def test_the_rest_of_the_contract_holds_there(files: Store, tmp_path: Path) -> None:
    files.write("a/b", b"first")
    first = files.stat("a/b")
    files.write("a/b", iter([b"sec", b"ond"]))
    assert (files.read("a/b"), files.read("a/b", 2, 3)) == (b"second", b"con")
    assert files.stat("a/b").identity != first.identity
    files.write_named([b"x"], lambda: "a/c")
    assert files.read("a/c") == b"x"
    assert [*files.names("a")] == ["b", "c"]
    (tmp_path / "root" / "a" / ".streambank-1.tmp").write_bytes(b"left by a crash")
    assert [*files.names("a")] == ["b", "c"]
    assert sorted(info.path for info in files.list()) == ["a/b", "a/c"]
    (tmp_path / "root" / "a" / ".streambank-1.tmp").unlink()
    for key in ("a/b", "a/c"):
        files.delete(key)
    files.prune()
    assert not (tmp_path / "root").exists()


def test_a_move_that_fails_leaves_the_old_bytes_and_nothing_else(
    files: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("f", b"old")

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Files, "mv", fail)
    with refuses(StorageError, "no-permission"):
        files.write("f", b"new")
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["f"]
    assert files.read("f") == b"old"


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no"), TimeoutError("no answer"), FileNotFoundError("gone")]
)
def test_a_folder_that_cannot_be_listed_is_left_out_only_where_it_went_away(
    files: Store, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    for key in ("offsets/0", "state/0/0/1.delta", "state/0/1/1.delta"):
        files.write(key, b"x")
    known = Files.ls

    def ls(self: Files, path: str, detail: bool = False, **options: Any) -> Any:
        if path.endswith("state/0/1"):
            raise error
        return known(self, path, detail=detail, **options)

    monkeypatch.setattr(Files, "ls", ls)
    if isinstance(error, FileNotFoundError):
        assert sorted(info.path for info in files.list()) == ["offsets/0", "state/0/0/1.delta"]
        return
    with pytest.raises(StorageError):
        list(files.list())


def test_a_checkpoint_there_is_saved(files: Store, tmp_path: Path) -> None:
    source = LocalStore(unpack("4.3.0/rocksdb-window", tmp_path / "was") / "checkpoint")
    for info in source.list():
        files.write(info.path, source.read(info.path))
    repository = Repository.open(open_store(f"{BLOBS}:/{tmp_path}/repository"), create=True)

    taken = take(TakeRequest(files, repository, "orders"))

    assert verify(repository, "orders", taken.savepoint, level="full").ok
    assert take(TakeRequest(files, repository, "orders")).already_there


def test_large_files_pass_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec_store, "MEMORY_BYTES", 1000)
    data = bytes(range(256)) * 100
    for scheme in (BLOBS, FILES):
        store = open_store(f"{scheme}:/{tmp_path}/{scheme}")
        store.write("f", (data[i : i + 300] for i in range(0, len(data), 300)))
        assert store.read("f") == data
        assert [info.path for info in store.list()] == ["f"]
    store = open_store(f"{BLOBS}:/{tmp_path}/{BLOBS}")
    with pytest.raises(ConflictError):
        store.write("f", [data[:2000], b"other"], exclusive=True)
    store.write("g", [data[:2000], b"other"], exclusive=True)
    assert store.read("g") == data[:2000] + b"other"


@pytest.mark.parametrize(
    ("scheme", "package"), [("gs", "gcsfs"), ("abfs", "adlfs"), ("abfss", "adlfs"), ("oss", "ossfs")]
)
def test_a_missing_package_is_named(scheme: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(StorageError) as raised:
        open_store(f"{scheme}://somewhere/x")
    assert (raised.value.code, raised.value.hint) == ("missing-package", f"pip install {package}")


def test_without_fsspec_itself_the_hint_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(StorageError) as raised:
        open_store("gs://somewhere/x")
    assert (raised.value.code, raised.value.hint) == ("missing-package", "pip install fsspec")


def test_hdfs_without_hadoop_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("Unable to load libhdfs")

    monkeypatch.setattr("fsspec.core.url_to_fs", fail)
    store = open_store("hdfs://namenode:8020/checkpoints/orders")
    assert store.uri == "hdfs://namenode:8020/checkpoints/orders"
    with pytest.raises(StorageError) as raised:
        store.exists("metadata")
    assert "CLASSPATH" in raised.value.hint


@pytest.mark.parametrize("location", ["sftp://me:hush@host/x", "gs://bucket/x::zip", "hdfs:///only/a/path"])
def test_locations_that_are_none(location: str) -> None:
    with refuses(InputError, "bad-location") as raised:
        open_store(location)
    assert "hush" not in str(raised.value.to_dict())


def test_nothing_that_a_package_says_is_repeated(files: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Authorization: hush")

    monkeypatch.setattr(Files, "info", fail)
    with pytest.raises(StorageError) as raised:
        files.stat("f")
    assert "RuntimeError" in raised.value.message
    assert "hush" not in str(raised.value.to_dict())


def test_listings_that_somebody_cached_hide_nothing(tmp_path: Path) -> None:
    shared = fsspec.filesystem(FILES)
    store = open_store(f"{FILES}:/{tmp_path}/root")
    store.write("f", b"x")
    assert store._fs is not shared  # type: ignore[attr-defined]  # a FsspecStore
    assert store._fs.dircache.use_listings_cache is False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("said", "identity", "mtime_ns"),
    [
        (
            {"size": 3, "generation": "17", "mtime": datetime(2026, 1, 2, tzinfo=UTC)},
            "17",
            1_767_312_000 * 10**9,
        ),
        ({"size": 3, "etag": '"0x8D"', "last_modified": datetime(1970, 1, 1, 0, 0, 1)}, "0x8D", 10**9),
        ({"size": 3, "mtime": datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)}, "-3-1000005000", 1_000_005_000),
        ({"size": 3, "modificationTime": 1500}, "-3-1500000000", 1_500_000_000),
        ({"size": 3, "modificationTime": 1500, "fileId": 16387}, "16387-3-1500000000", 1_500_000_000),
        ({"size": 3, "LastModified": "1970-01-01T00:00:02+00:00"}, "-3-2000000000", 2_000_000_000),
    ],
)
def test_what_tells_versions_apart(said: dict[str, Any], identity: str, mtime_ns: int) -> None:
    info = info_of("f", said, "x://y/f")
    assert (info.size_bytes, info.identity, info.mtime_ns) == (3, identity, mtime_ns)


@pytest.mark.parametrize(
    ("name", "start", "inside"),
    [("/a/b", "/a", "b"), ("a/b", "/a", "b"), ("/ab", "/a", ""), ("/a", "/a", ""), ("/a/b", "", "a/b")],
)
def test_what_is_below_a_path(name: str, start: str, inside: str) -> None:
    assert below(name, start) == inside


def test_a_filesystem_that_tells_no_versions_is_refused() -> None:
    with refuses(StorageError, "no-file-version"):
        info_of("f", {"size": 3}, "x://y/f")


def test_a_held_file_is_one_version(files: Store) -> None:
    files.write("f", b"first")
    held = files.hold("f")
    files.write("f", b"other")
    with pytest.raises(NotFoundError), held.open():
        pass


def test_an_unusable_name_is_said(files: Store, tmp_path: Path) -> None:
    files.write("f", b"x")
    (tmp_path / "root" / "a\nb").write_bytes(b"")
    with refuses(FormatError, "bad-key"):
        list(files.list())
