"""Removing a directory of this machine: what is looked at, what goes, and what is said where it cannot."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from streambank.core.errors import ConflictError, NotFoundError, RefusedError, StorageError
from streambank.storage.local.trees import DirectoryIdentity, is_private, judge, opened, remove_directory


@pytest.fixture
def top(tmp_path: Path) -> Path:
    found = tmp_path / "top"
    (found / "below/deep").mkdir(parents=True)
    for name in ("a", "below/b", "below/deep/.c.crc"):
        (found / name).write_bytes(b"x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_bytes(b"x")
    (found / "link").symlink_to(tmp_path / "elsewhere")
    (found / "below/dangling").symlink_to("nothing")
    os.mkfifo(found / "pipe")
    return found


def test_everything_goes_and_nothing_that_a_link_leads_to(top: Path) -> None:
    told: list[str] = []
    with opened(top, judge(top), told.append) as tree:
        for name in tree.names():
            tree.remove(name)
        tree.remove("a")
        tree.end()
        tree.end()
    assert not top.exists() and (top.parent / "elsewhere/file").exists(), "what is gone is no error"
    assert sorted(told) == ["a", "below/b", "below/dangling", "below/deep/.c.crc", "link", "pipe"]
    remove_directory(top)


def test_one_that_vanishes_while_it_is_open_has_nothing_in_it(top: Path) -> None:
    with opened(top, judge(top)) as tree:
        shutil.rmtree(top)
        assert tree.names() == []
        tree.remove("below")
        tree.end()


@pytest.mark.parametrize("what", ["link", "pipe", "nothing"])
def test_only_a_directory_is_looked_at(top: Path, what: str) -> None:
    with pytest.raises((RefusedError, NotFoundError)) as caught:
        judge(top / what)
    assert caught.value.code == ("no-such-file" if what == "nothing" else "not-a-directory")


def test_another_one_is_not_opened(top: Path) -> None:
    device, inode = judge(top)
    for other in (DirectoryIdentity(device, inode + 1), DirectoryIdentity(device + 1, inode)):
        with pytest.raises(RefusedError) as caught:
            remove_directory(top, other)
        assert caught.value.code == "not-a-directory" and (top / "a").exists()
    with pytest.raises(NotFoundError), opened(top.parent / "gone", DirectoryIdentity(device, inode)):
        pass


def test_what_is_mounted_below_it_stays(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = os.stat

    def mounted(path: str, **how: object) -> os.stat_result:
        found = look(path, **how)  # type: ignore[arg-type]
        return os.stat_result((*found[:2], found.st_dev + 1, *found[3:])) if path == "deep" else found

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", mounted)
        with pytest.raises(StorageError, match=r"mounted at .*/below/deep") as caught:
            remove_directory(top)
    assert caught.value.code == "directory-not-removed" and "nothing of it goes" not in caught.value.message
    assert (top / "below/deep/.c.crc").exists() and not (top / "a").exists(), "the rest had begun to go"
    remove_directory(top)
    assert not top.exists(), "once it is unmounted, it goes on"


def test_what_cannot_be_removed_is_said_and_the_next_try_goes_on(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(1, "not allowed")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", denied)
        with pytest.raises(StorageError, match="not allowed") as caught:
            remove_directory(top)
    assert caught.value.code == "directory-not-removed" and top.exists()
    remove_directory(top)
    assert not top.exists()


def test_whoever_is_told_may_stop_it(top: Path) -> None:
    def stop(path: str) -> None:
        raise ConflictError("lost", code="claim-lost")

    with pytest.raises(ConflictError), opened(top, judge(top), stop) as tree:
        tree.remove("below")
    assert (top / "below/b").exists() and (top / "below/deep/.c.crc").exists()


def test_who_may_write_into_a_directory(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode, private in ((0o700, True), (0o755, True), (0o775, False), (0o757, False)):
        top.chmod(mode)
        assert is_private(top) is private
    top.chmod(0o700)
    assert not is_private(top / "link") and not is_private(top / "a") and not is_private(top / "nothing")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert not is_private(top)
