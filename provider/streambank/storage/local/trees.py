"""Removing a directory of this machine with all that is in it: the directory that was judged, and no other.

A name is not the directory: between a look and a removal somebody may rename it, and lay a link to another
one in its place. So a directory is judged by what it is (device and inode), opened once without following a
link, and everything in it is found and removed relative to that descriptor.
"""

from __future__ import annotations

import os
import stat as statmod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from streambank.core.errors import NotFoundError, RefusedError, StorageError
from streambank.storage.local.errors import NOT_THERE, translate
from streambank.storage.store import missing_error

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
_ABOVE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC | os.O_DIRECTORY


class DirectoryIdentity(NamedTuple):
    """Which directory was looked at, whatever it is called later."""

    device: int
    inode: int


def judge(path: Path, *, made: bool = False) -> DirectoryIdentity:
    """Look at a directory that may be removed.

    Args:
        made: It was made right now by whoever asks: on a share that shows everything as open to everybody, or
            as another user's, that is known of nothing that is found.

    Raises:
        NotFoundError: There is none (code `no-such-file`).
        RefusedError: It is a link, or no directory (code `not-a-directory`); or everybody may write into the
            folder that it is in, and it was neither made right now nor is this user's alone
            (`not-this-users`).
    """
    try:
        found, above = path.lstat(), path.parent.stat()
    except OSError as error:
        raise (
            missing_error(str(path)) if error.errno in NOT_THERE else translate(error, str(path))
        ) from error
    if not statmod.S_ISDIR(found.st_mode):
        raise RefusedError(
            f"{path} is a symbolic link or a file, and no directory: nothing is removed.",
            code="not-a-directory",
            hint="Look at where it leads, and remove that or the link yourself.",
        )
    if not made and above.st_mode & statmod.S_IWOTH and not _is_this_users(found, statmod.S_IWOTH):
        raise RefusedError(
            f"{path} is in a folder into which everybody may write, and it is not this user's alone.",
            code="not-this-users",
            hint="Its owner can remove it. Keep such folders where only those may write who work on the job.",
        )
    return DirectoryIdentity(found.st_dev, found.st_ino)


def is_private(path: Path) -> bool:
    """Whether this is a directory of this user, and no link, into which nobody else may write."""
    with suppress(OSError):
        found = path.lstat()
        return statmod.S_ISDIR(found.st_mode) and _is_this_users(found, statmod.S_IWOTH | statmod.S_IWGRP)
    return False


def _is_this_users(found: os.stat_result, others: int) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & others


class Tree:
    """An open directory that is being removed. What is gone meanwhile is no error.

    Args:
        each: Called with the relative path of every file, right before it goes; may raise.
    """

    def __init__(
        self, path: Path, above: int, top: int, judged: DirectoryIdentity, each: Callable[[str], object]
    ) -> None:
        self._path, self._above, self._top, self._judged, self._each = path, above, top, judged, each

    def names(self) -> list[str]:
        return sorted(os.listdir(self._top))  # noqa: PTH208 - of a descriptor

    def remove(self, name: str) -> None:
        """Remove a file, a link (never what it leads to), or a folder with all that is in it.

        Raises:
            RefusedError: A folder is another one by now (code `not-a-directory`).
            StorageError: Something is mounted at a folder (`directory-not-removed`).
        """
        self._remove(self._top, name, name)

    def end(self) -> None:
        """Remove the directory itself, which is empty by now.

        Raises:
            RefusedError: Something else has its name by now (code `not-a-directory`).
        """
        with suppress(FileNotFoundError):
            found = os.stat(self._path.name, dir_fd=self._above, follow_symlinks=False)
            if (found.st_dev, found.st_ino) != self._judged:
                raise _moved(self._path)
            os.rmdir(self._path.name, dir_fd=self._above)

    def _remove(self, folder: int, name: str, path: str) -> None:
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not statmod.S_ISDIR(found.st_mode):
                self._each(path)
                os.unlink(name, dir_fd=folder)
                return
            if found.st_dev != self._judged.device:
                raise StorageError(
                    f"{self._path} could not be removed: what is mounted at {self._path / path} is somebody "
                    "else's, and stays, as does what had not gone by then.",
                    code="directory-not-removed",
                    hint="Unmount it, and clean again: it goes on where it stopped.",
                )
            below = _opened(name, folder, DirectoryIdentity(found.st_dev, found.st_ino), self._path / path)
            try:
                for inside in os.listdir(below):  # noqa: PTH208 - of a descriptor
                    self._remove(below, inside, f"{path}/{inside}")
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=folder)


@contextmanager
def opened(
    path: Path, judged: DirectoryIdentity, each: Callable[[str], object] = lambda _: None
) -> Iterator[Tree]:
    """A directory to be removed, part by part.

    Raises:
        NotFoundError: There is none (code `no-such-file`).
        RefusedError: Another one, or a link, has its name by now (code `not-a-directory`).
        StorageError: Something could not be removed (`directory-not-removed`); the same call goes on there.
    """
    try:
        above = os.open(path.parent, _ABOVE)
        try:
            top = _opened(path.name, above, judged, path)
            try:
                yield Tree(path, above, top, judged, each)
            finally:
                os.close(top)
        finally:
            os.close(above)
    except FileNotFoundError as error:
        raise missing_error(str(path)) from error
    except (OSError, RecursionError) as error:
        raise StorageError(
            f"{path} could not be removed: {error}",
            code="directory-not-removed",
            hint="See to what the error says, and clean again: it goes on where it stopped.",
        ) from error


def remove_directory(path: Path, judged: DirectoryIdentity | None = None) -> None:
    """Remove a directory with all that is in it; one that is not there is no error.

    Raises:
        RefusedError: As `judge` and `opened`.
        StorageError: As `opened`.
    """
    with suppress(NotFoundError), opened(path, judged or judge(path)) as tree:
        for name in tree.names():
            tree.remove(name)
        tree.end()


def _opened(name: str, folder: int, judged: DirectoryIdentity, path: Path) -> int:
    try:
        descriptor = os.open(name, _OPEN, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        if not statmod.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _moved(path) from error
        raise
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != judged:
        os.close(descriptor)
        raise _moved(path)
    return descriptor


def _moved(path: Path) -> RefusedError:
    return RefusedError(
        f"{path} is a link, or another one by now than the directory that was looked at: nothing of it goes.",
        code="not-a-directory",
        hint="Look at what is there, and at who may write there. The next run removes what is right.",
    )
