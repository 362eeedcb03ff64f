from __future__ import annotations

import os
from pathlib import Path

import pytest

from streambank.core.errors import FormatError, InputError
from streambank.storage import local_path, normalize_location, open_store, scheme_of
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("/a/b", "file:///a/b"),
        ("/a/b/", "file:///a/b"),
        ("//a//b/../c", "file:///a/c"),
        ("file:///a/b/", "file:///a/b"),
        ("file:/a/b", "file:///a/b"),
        ("FILE:///a", "file:///a"),
        ("file://localhost/a", "file:///a"),
        ("file:///a b%20c#d?e", "file:///a b%20c#d?e"),
        ("/", "file:///"),
        ("memory://name", "memory://name"),
        ("memory://name//x/./y/", "memory://name/x/y"),
        ("s3://bucket/prefix/", "s3://bucket/prefix"),
    ],
)
def test_one_spelling(location: str, uri: str) -> None:
    assert normalize_location(location) == uri
    assert normalize_location(uri) == uri


def test_relative_paths_are_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert normalize_location("ck") == f"file://{tmp_path}/ck"
    assert normalize_location(Path("a:b")) == f"file://{tmp_path}/a:b"


def test_a_working_directory_that_is_not_utf_8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(InputError) as raised:
        normalize_location("ck")
    assert raised.value.code == "bad-location"


def test_the_home_directory_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert normalize_location("~/ck") == "file:///home/me/ck"


def test_symbolic_links_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    assert normalize_location(tmp_path / "link") == f"file://{tmp_path}/link"


@pytest.mark.parametrize("location", ["", "a\0b", "a\udcff", "file://host/a", "memory://", "memory://a/../b"])
def test_what_is_no_location(location: str) -> None:
    with pytest.raises(InputError) as raised:
        normalize_location(location)
    assert raised.value.code == "bad-location"
    assert raised.value.hint


def test_opens_by_scheme(tmp_path: Path) -> None:
    local = open_store(tmp_path / "x")
    assert isinstance(local, LocalStore)
    assert local.root == tmp_path / "x"
    assert not local.root.exists()
    open_store("memory://opens-by-scheme/a").write("b", b"x")
    memory = open_store("memory://opens-by-scheme")
    assert isinstance(memory, MemoryStore)
    assert memory.read("a/b") == b"x"
    assert open_store("memory://another").names() == []


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(FormatError, match="gopher://") as raised:
        open_store("gopher://host/x")
    assert raised.value.code == "unknown-scheme"
    assert "file" in raised.value.hint


def test_the_path_of_a_location(tmp_path: Path) -> None:
    assert local_path("file:/a/b") == Path("/a/b")
    assert local_path(tmp_path) == tmp_path
    assert local_path("memory://x") is None
    assert scheme_of("S3://b/k") == "s3"
    assert scheme_of("a/b") == "file"
