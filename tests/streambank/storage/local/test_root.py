"""Symbolic links on a local disk: none leads out of the root, and none is written through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streambank.core.errors import InputError, IntegrityError, NotFoundError
from streambank.storage.local.store import LocalStore
from tests.support.refuses import refuses


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(b"secret")
    return tmp_path / "outside"


def temporary_files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.name.startswith(".streambank-")]


@pytest.mark.parametrize("call", ["read", "stat", "exists", "hold", "open"])
@pytest.mark.parametrize("key", ["file", "directory/secret"])
def test_a_link_out_of_the_root_is_refused(store: LocalStore, outside: Path, call: str, key: str) -> None:
    store.root.mkdir()
    (store.root / "file").symlink_to(outside / "secret")
    (store.root / "directory").symlink_to(outside)

    with refuses(IntegrityError, "symlink-escape", match="leaves"):
        if call == "open":
            with store.open(key):
                pass
        else:
            getattr(store, call)(key)


def test_nothing_is_written_deleted_or_renamed_through_a_link(store: LocalStore, outside: Path) -> None:
    store.write("mine", b"mine")
    (store.root / "directory").symlink_to(outside)
    calls: list[Callable[[], object]] = [
        lambda: store.write("directory/new", b"x"),
        lambda: store.write("directory/deep/new", b"x"),
        lambda: store.write("directory/secret", b"x", exclusive=True),
        lambda: store.write_named([b"x"], lambda: "directory/new"),
        lambda: store.delete("directory/secret"),
        lambda: store.rename("directory/secret", "here"),
        lambda: store.rename("mine", "directory/here"),
        lambda: store.link_from(store, "directory/secret", "here"),
        lambda: store.copy_from(store, "directory/secret", "here"),
        lambda: store.copy_from(store, "mine", "directory/here"),
    ]
    for call in calls:
        with pytest.raises(IntegrityError):
            call()
    assert {path.name for path in outside.iterdir()} == {"secret"}
    assert (outside / "secret").read_bytes() == b"secret"
    assert store.read("mine") == b"mine"
    assert temporary_files(store.root) == []


def test_a_write_replaces_a_link_and_not_what_it_leads_to(store: LocalStore, outside: Path) -> None:
    store.root.mkdir()
    (store.root / "file").symlink_to(outside / "secret")

    store.write("file", b"new")

    assert (outside / "secret").read_bytes() == b"secret"
    assert store.read("file") == b"new"


def test_a_dangling_directory_link_is_not_made_elsewhere(store: LocalStore, outside: Path) -> None:
    store.root.mkdir()
    (store.root / "directory").symlink_to(outside / "made")
    with pytest.raises(NotFoundError):
        store.write("directory/file", b"x")
    assert not (outside / "made").exists()


def test_a_child_that_is_a_link_out_of_the_root_is_refused(store: LocalStore, outside: Path) -> None:
    store.root.mkdir()
    (store.root / "child").symlink_to(outside)
    with pytest.raises(IntegrityError):
        store.child("child").read("secret")
    with pytest.raises(IntegrityError):
        list(store.child("child").list())


def test_links_inside_the_root_are_followed(store: LocalStore) -> None:
    store.write("real/file", b"x")
    (store.root / "file").symlink_to("real/file")
    (store.root / "directory").symlink_to("real")

    assert store.read("file") == store.read("directory/file") == b"x"
    assert store.stat("file").size_bytes == 1


def test_a_look_at_many_says_what_a_stat_says_and_follows_no_link(store: LocalStore, outside: Path) -> None:
    files = ["a", "d/b", "d/e/c"]
    for key in files:
        store.write(key, key.encode())
    (store.root / "d" / "inside").symlink_to(store.root / "a")
    (store.root / "d" / "out").symlink_to(outside / "secret")
    (store.root / "elsewhere").symlink_to(outside)
    (store.root / "near").symlink_to(store.root / "d")
    left_out = ["d", "gone", "gone/too", "d/inside", "d/out", "elsewhere/secret", "a/below-a-file"]

    seen = store.look([*left_out, *files, "near/b"])

    assert seen == {key: store.stat(key) for key in [*files, "near/b"]}
    assert store.stat("d/inside").size_bytes == 1
    with pytest.raises(InputError):
        store.look(["../outside/secret"])
    assert LocalStore(store.root / "not-there").look(files) == {}


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    LocalStore(tmp_path / "real").write("file", b"x")
    (tmp_path / "link").symlink_to("real")
    store = LocalStore(tmp_path / "link")

    assert store.read("file") == b"x"
    assert store.uri == f"file://{tmp_path}/link"


def test_listing_follows_no_link_out_and_no_circle(store: LocalStore, outside: Path) -> None:
    store.write("a/file", b"x")
    (store.root / "a/up").symlink_to("..")
    (store.root / "out").symlink_to(outside)
    (store.root / "secret").symlink_to(outside / "secret")
    (store.root / "nowhere").symlink_to("missing")
    (store.root / "inside").symlink_to("a/file")

    listed = {info.path: info.size_bytes for info in store.list()}

    assert sorted(listed) == ["a/file", "a/up", "inside", "nowhere", "out", "secret"]
    assert listed["inside"] == 1
    for key in ("out", "secret"):
        with pytest.raises(IntegrityError):
            store.read(key)
