"""The directory below which a local store works, and the one rule of it: nothing outside is ever touched.

Each file or directory is opened first and then asked, by its descriptor, where it really is. That leaves no
gap between the check and the use: a symbolic link that leaves the root is refused whenever it was put there.
"""

from __future__ import annotations

import os
import stat as statmod
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from streambank.core.errors import IntegrityError, StreambankError
from streambank.core.last_read import reading
from streambank.storage.local.errors import NOT_THERE, translate, translate_read
from streambank.storage.local.write import sync_directory
from streambank.storage.names import TEMPORARY_PREFIX, TEMPORARY_SUFFIX, check_key
from streambank.storage.store import FileInfo, missing_error

# A named pipe in a checkpoint would block whoever opens it; regular files do not mind O_NONBLOCK.
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
OVERWRITE = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LAST_NS = (1 << 63) - 1


class Root:
    """A directory that need not exist yet.

    Args:
        boundary: What links may lead into: the path itself, or the one of the store that this is a child of.

    Attributes:
        unsettled: Directories with new names that are not durable yet, in the view of a `bulk`; else None.
    """

    def __init__(self, path: str, boundary: str, *, fsync: bool) -> None:
        self.path = path
        self.boundary = boundary
        self.fsync = fsync
        self.unsettled: set[str] | None = None
        self._real_boundary: str | None = None

    def join(self, key: str) -> str:
        return f"{self.path}/{key}" if key else self.path

    def open_file(self, key: str, flags: int) -> tuple[int, FileInfo]:
        """A descriptor of a regular file inside the root, and its stat.

        Raises:
            NotFoundError: There is none, or it is a directory or a device.
            IntegrityError: A link leads out of the root (code `symlink-escape`).
        """
        path = self.join(check_key(key))
        reading(path)
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            if error.errno in NOT_THERE:
                raise missing_error(path) from error
            raise translate_read(error, path) from error
        try:
            self._check_inside(descriptor, path)
            try:
                status = os.fstat(descriptor)
            except OSError as error:
                raise translate_read(error, path) from error
            if not statmod.S_ISREG(status.st_mode):
                raise missing_error(path)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, file_info(key, status)

    @contextmanager
    def directory(self, key: str, *, create: bool = False) -> Iterator[int]:
        """A descriptor of a directory inside the root, made with its parents where `create`.

        Raises:
            NotFoundError: There is none, and it was not to be made.
            IntegrityError: A link leads out of the root (code `symlink-escape`).
        """
        descriptor = self._open_directory(self.join(key), create=create)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def look(self, keys: Iterable[str]) -> dict[str, FileInfo]:
        """Regular files by key; each directory is opened and judged once, not once a file.

        Left out is what is not there, what cannot be looked at, and links, which may lead anywhere.
        """
        folders: dict[str, list[str]] = {}
        for key in keys:
            folders.setdefault(check_key(key).rpartition("/")[0], []).append(key)
        found: dict[str, FileInfo] = {}
        for folder, below in folders.items():
            with suppress(StreambankError), self.directory(folder) as directory:
                for key in below:
                    with suppress(OSError):
                        status = os.stat(key.rpartition("/")[2], dir_fd=directory, follow_symlinks=False)
                        if statmod.S_ISREG(status.st_mode):
                            found[key] = file_info(key, status)
        return found

    @contextmanager
    def temporary(self, directory: int) -> Iterator[tuple[str, int]]:
        """Name and descriptor of an empty file; whatever still has that name at the end is removed."""
        name, descriptor = self.create_temporary(directory)
        try:
            yield name, descriptor
        finally:
            try:
                self.close_written(descriptor, name)
            finally:
                with suppress(FileNotFoundError):  # it has its real name by now
                    os.unlink(name, dir_fd=directory)

    def create_temporary(self, directory: int) -> tuple[str, int]:
        """Name and descriptor of an empty file that no store lists."""
        name = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
        try:
            return name, os.open(name, _CREATE, 0o666, dir_fd=directory)
        except OSError as error:
            raise translate(error, self.join(name)) from error

    def close_written(self, descriptor: int, key: str) -> None:
        """Close a file that was written to; network file systems tell only here that their disk is full."""
        try:
            os.close(descriptor)
        except OSError as error:
            raise translate(error, self.join(key)) from error

    def sync(self, directory: int, path: str) -> None:
        """Make new names in a directory durable, or note that somebody has to."""
        if self.fsync:
            try:
                sync_directory(directory)
            except OSError as error:
                raise translate(error, path) from error
        elif self.unsettled is not None:
            self.unsettled.add(path)  # adding to a set is atomic

    def _open_directory(self, path: str, *, create: bool) -> int:
        try:
            descriptor = os.open(path, _DIRECTORY)
        except FileNotFoundError as error:
            if not create or os.path.islink(path):  # noqa: PTH114 - a dangling link would be made elsewhere
                raise missing_error(path) from error
            self._make_directory(path)
            return self._open_directory(path, create=create)
        except OSError as error:
            if error.errno in NOT_THERE and not create:
                raise missing_error(path) from error
            raise translate(error, path) from error
        if path == self.path or path.startswith(f"{self.path}/"):
            try:
                self._check_inside(descriptor, path)
            except BaseException:
                os.close(descriptor)
                raise
        return descriptor

    def _make_directory(self, path: str) -> None:
        parent_path, _, name = path.rpartition("/")
        parent = self._open_directory(parent_path or "/", create=True)
        try:
            with suppress(FileExistsError):  # another writer was faster
                os.mkdir(name, dir_fd=parent)
            self.sync(parent, parent_path or "/")
        except OSError as error:
            raise translate(error, path) from error
        finally:
            os.close(parent)

    def _check_inside(self, descriptor: int, path: str) -> None:
        real = _real_path(descriptor, path)
        if self._real_boundary is None:  # once: else a link in the place of the root itself would be followed
            self._real_boundary = os.path.realpath(self.boundary)
        if not _is_inside(real, self._real_boundary):
            raise IntegrityError(
                f"{path} is a link that leaves {self.boundary}: it leads to {real}.",
                code="symlink-escape",
                hint="Put the files themselves there, or name the directory that holds them.",
            )


def file_info(key: str, status: os.stat_result) -> FileInfo:
    """A stat of the operating system as ours."""
    changed_ns = mtime_ns(status)
    identity = f"{status.st_ino}-{status.st_size}-{changed_ns}"
    return FileInfo(key, status.st_size, changed_ns, identity, status.st_nlink)


def mtime_ns(status: os.stat_result) -> int:
    """When a file was changed: 1970 for before that, and the last moment that 64 bits hold for after it."""
    found = status.st_mtime_ns
    return found if 0 <= found <= _LAST_NS else max(0, min(found, _LAST_NS))


def _real_path(descriptor: int, path: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - the kernel's link, not a file's
    except OSError:
        return os.path.realpath(path)  # a system without /proc


def _is_inside(real: str, boundary: str) -> bool:
    return real == boundary or real.startswith(boundary.rstrip("/") + "/")
