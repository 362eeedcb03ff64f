from __future__ import annotations

import os
from pathlib import Path

import pytest

from streambank.core.errors import FormatError, InputError
from streambank.storage import (
    is_below,
    is_beside,
    local_path,
    normalize_location,
    open_store,
    scheme_of,
    service_name,
)
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3a://b/repo", "S3n://b//./repo/", True),
        ("memory://a/./repo", "memory://a/repo", True),
        ("hdfs://NN:8020/ck", "hdfs://nn/ck", True),
        ("hdfs://nn:9000/ck", "hdfs://nn/ck", False),
        ("hdfs://NN:9000/ck", "hdfs://nn:9000/ck", True),
        ("webhdfs://NN:9870/ck", "webhdfs://nn/ck", True),
        ("sftp://Ann@H/ck", "sftp://Ann@h:22/ck", True),
        ("sftp://Ann@h/ck", "sftp://ann@h/ck", False),
        ("abfss://c@A.dfs.core.windows.net/ck", "abfs://c@a.dfs.core.windows.net/ck", True),
        ("az://c/ck", "abfs://c/ck", True),
        ("gcs://b/ck", "gs://b/ck", True),
        ("gs://B/ck", "gs://b/ck", False),
        ("hdfs://nn/Ck", "hdfs://nn/ck", False),
        ("gs://b/ck", "s3://b/ck", False),
        ("file:/data/../ck", "/ck", True),
        ("memory://a/../b", "memory://a/../b", True),
        (None, None, True),
        (None, "/ck", False),
    ],
)
def test_one_place_has_one_name(one: str | None, other: str | None, same: bool) -> None:
    assert (service_name(one) == service_name(other)) is same


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
    with refuses(InputError, "bad-location"):
        normalize_location("ck")


def test_the_home_directory_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert normalize_location("~/ck") == "file:///home/me/ck"


def test_symbolic_links_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    assert normalize_location(tmp_path / "link") == f"file://{tmp_path}/link"


@pytest.mark.parametrize("location", ["", "a\0b", "a\udcff", "file://host/a", "memory://", "memory://a/../b"])
def test_what_is_no_location(location: str) -> None:
    with refuses(InputError, "bad-location") as raised:
        normalize_location(location)
    assert raised.value.hint


@pytest.mark.parametrize("character", ["\n", "\r", "\t", "\x1b", "\x7f", "\x9b", "\u2028", "\u202e"])
def test_no_location_steers_a_terminal_or_breaks_a_line(character: str) -> None:
    for location in (f"/data/a{character}b", f"s3://bucket/a{character}b", f"memory://a{character}b"):
        with refuses(InputError, "bad-location", match="control character"):
            normalize_location(location)


def test_what_is_below_and_what_is_beside(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "in").mkdir()
    out = tmp_path / "out"
    assert is_beside(tmp_path / "new", out) and is_beside("/a", "/b")
    assert is_beside("s3a://bucket/new", "s3://bucket/out") and is_below("s3a://bucket/a/b", "s3://bucket/a")
    for other in (out, out / "below", tmp_path / "in/x", tmp_path, tmp_path / "link", tmp_path / "../x"):
        assert not is_beside(other, out)
    for left, right in (("s3://a", "s3://b"), ("s3://a/x", "s3://b/x"), ("hdfs://h/a", "/b"), ("/", "/a")):
        assert not is_beside(left, right)
    assert is_below(out / "x", out) and not is_below(out, out) and not is_below(tmp_path / "outer", out)
    assert not is_below(tmp_path / "link/share", tmp_path)


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
    with refuses(FormatError, "unknown-scheme", match="gopher://", hint="file"):
        open_store("gopher://host/x")


def test_the_path_of_a_location(tmp_path: Path) -> None:
    assert local_path("file:/a/b") == Path("/a/b")
    assert local_path(tmp_path) == tmp_path
    assert local_path("memory://x") is None
    assert scheme_of("S3://b/k") == "s3"
    assert scheme_of("a/b") == "file"
