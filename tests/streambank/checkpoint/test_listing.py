from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.checkpoint.listing import Listing, list_checkpoint
from streambank.core.errors import FormatError
from streambank.storage.local.store import LocalStore
from streambank.storage.store import FileInfo
from tests.support.refuses import refuses

numbers = st.integers(0, 2**63 - 1)
names = st.text("ab.0-", min_size=1, max_size=30)


@st.composite
def files(draw: st.DrawFn) -> FileInfo:
    path = "/".join(draw(st.lists(names, min_size=1, max_size=3)))
    size_bytes, mtime_ns = draw(numbers), draw(numbers)
    odd = st.sampled_from(["", "0", "00", "007", "-1", "\u0663", "9" * 30, "etag"])
    number = draw(st.one_of(numbers.map(str), odd))
    tail = draw(st.sampled_from([f"-{size_bytes}-{mtime_ns}", "", "-1-2"]))
    return FileInfo(path, size_bytes, mtime_ns, number + tail)


@given(st.lists(files(), max_size=20))
def test_is_what_was_put_in(found: list[FileInfo]) -> None:
    expected = {info.path: info for info in found}
    listing = Listing(found)
    assert dict(listing) == expected
    assert len(listing) == len(expected)
    assert listing.bytes == sum(info.size_bytes for info in expected.values())
    assert all(path in listing for path in expected)
    named = [(folder, name) for folder in listing.folders() for name in listing.names(folder)]
    assert {f"{folder}/{name}" if folder else name for folder, name in named} == set(expected)
    assert "not/there" not in listing and listing.get("not/there") is None
    assert list(listing.names("not there")) == []


def test_a_scan_is_a_list(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    for key in ("metadata", "offsets/0", "commits/0", "state/0/1/2.delta", "state/0/2/2.delta", "odd/x"):
        store.write(key, key.encode())
    (tmp_path / "state/0/1/link").symlink_to(tmp_path / "metadata")
    (tmp_path / "state/0/1/dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "state/0/1/.streambank-1.tmp").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    listing = list_checkpoint(store)
    assert dict(listing) == {info.path: info for info in store.list()}
    assert listing["state/0/1/2.delta"] == store.stat("state/0/1/2.delta")
    assert listing["state/0/1/link"] == store.stat("state/0/1/link")


@pytest.mark.parametrize("name", [b"not \xff UTF-8", b"back\\slash", b"two\nlines"])
@pytest.mark.parametrize("folder", ["", "state/0"])
def test_a_name_that_cannot_be_used_is_one_error_that_names_the_directory(
    tmp_path: Path, name: bytes, folder: str
) -> None:
    store = LocalStore(tmp_path / "checkpoint", fsync=False)
    store.write("state/0/metadata", b"")
    (tmp_path / "checkpoint" / folder / os.fsdecode(name)).touch()
    with refuses(FormatError, "bad-key") as raised:
        list_checkpoint(store)
    assert str(tmp_path / "checkpoint") in raised.value.message
    assert raised.value.hint
