"""Making everything below a directory durable at once: one `syncfs` where that is enough, else file by file.

`syncfs` costs one commit of the file system's journal instead of one for each file, but it also writes back
what others left dirty on that file system. It is used only where it says the same as `fsync` of every file:

* on Linux 5.8 or newer: before, it did not report that a write to the device had failed (syncfs(2));
* on file systems of a block device, or of memory: FUSE, SMB and overlays hand their pages to somebody else,
  whom `syncfs` does not make sync, or whose errors it does not see.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat as statmod
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from types import TracebackType
from typing import Any

from streambank.storage.local.errors import NOT_THERE, translate
from streambank.storage.local.root import Root
from streambank.storage.local.write import begin_write_back, sync_directory
from streambank.storage.names import check_key

_REPORTS_ERRORS = (5, 8)
# linux/magic.h and the file systems' own headers: ext2 to ext4, XFS, btrfs, F2FS, tmpfs
_WHOLE = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
_STATFS_LONGS = 64  # more than any struct statfs; its first field, a long, is the type
_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


FEW = 32
"""So many files are synced one by one, which leaves alone what others have left dirty."""
AT_ONCE = 8
"""So many of them at a time: a journal commits together what is asked for while it commits."""


def sync_directories(root: int, directories: Iterable[str]) -> None:
    """Make the files and names directly in some directories durable.

    Args:
        root: Descriptor of a directory above them, opened before the first of the writes: `syncfs` reports
            what went wrong since.
    """
    synced: set[int] = set()
    if _sync_file_system(root):
        synced.add(os.fstat(root).st_dev)
    for path in directories:
        try:
            directory = os.open(path, _DIRECTORY)
        except OSError as error:
            _raise_unless_gone(error)
            continue
        try:
            device = os.fstat(directory).st_dev
            if device in synced:
                continue
            if _sync_file_system(directory):  # of something that is mounted below the root
                synced.add(device)
                continue
            _sync_files(directory, os.listdir(directory))  # noqa: PTH208 - of a descriptor
            sync_directory(directory)
        finally:
            os.close(directory)


def sync_names(root: int, directories: Iterable[str]) -> None:
    """Make names in directories below `root`, on its file system, durable: the files' bytes are already."""
    paths = sorted(directories)
    if len(paths) > FEW and _sync_file_system(root):
        return
    for path in paths:
        directory = os.open(path, _DIRECTORY)
        try:
            sync_directory(directory)
        finally:
            os.close(directory)


def sync_all(root: int, names: Sequence[str]) -> None:
    """Make the bytes of files in a directory durable; its descriptor was opened before the first write."""
    if len(names) <= FEW or not _sync_file_system(root):
        _sync_files(root, names)


def _sync_files(directory: int, names: Sequence[str]) -> None:
    if len(names) < 2:
        for name in names:
            _sync_file(directory, name)
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(names)), thread_name_prefix="streambank-sync") as pool:
        for _ in pool.map(partial(_sync_file, directory), names):
            pass  # the first error is raised


def _sync_file(directory: int, name: str) -> None:
    try:
        if not statmod.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return
        descriptor = os.open(name, _READ, dir_fd=directory)
    except FileNotFoundError:
        return  # somebody removed it meanwhile
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_file_system(descriptor: int) -> bool:
    """Write back a whole file system; False where `syncfs` would promise less than `fsync` of each file."""
    library = _c_library()
    if library is None:
        return False
    answer = (ctypes.c_long * _STATFS_LONGS)()
    if library.fstatfs(descriptor, answer) != 0 or answer[0] not in _WHOLE:
        return False
    if library.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True


@cache
def _c_library() -> Any:
    """The C library, where it has a `syncfs` that reports errors; None elsewhere."""
    system = os.uname()
    release = re.match(r"(\d+)\.(\d+)", system.release)
    if system.sysname != "Linux" or release is None:
        return None
    if (int(release[1]), int(release[2])) < _REPORTS_ERRORS:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "syncfs") and hasattr(library, "fstatfs") else None


def _raise_unless_gone(error: OSError) -> None:
    if error.errno not in NOT_THERE:
        raise error


def folder_ends(folder: str) -> Iterator[int]:
    """Where the path of a folder, and of each one above it, ends."""
    yield 0
    yield from (place for place, letter in enumerate(folder) if letter == "/")
    yield len(folder)


class PendingFiles:
    """The waiting files of one bulk; a `with`, whose end gives them their names.

    Args:
        root: Where they lie, under temporary names; it syncs nothing by itself.
        descriptor: Of that directory, opened before the first write.
    """

    def __init__(self, root: Root, descriptor: int) -> None:
        self._root = root
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._files: dict[str, str] = {}

    def __enter__(self) -> PendingFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._name_all()
        finally:
            for temporary in self._files.values():
                with suppress(OSError):  # it has its real name by now; what cannot be removed is never listed
                    os.unlink(temporary, dir_fd=self._descriptor)

    def write(self, root: Root, fill: Callable[[int, str], object], name: Callable[[], str | None]) -> None:
        """Write a file, and keep its name until the end.

        Args:
            fill: Writes the bytes to a descriptor, under a name for messages.
            name: The file's key in that store, once the bytes have passed; None to drop it.
        """
        temporary, descriptor = self._root.create_temporary(self._descriptor)
        try:
            fill(descriptor, temporary)
            key = name()
            if key is None:
                return
            path = root.join(check_key(key))
            begin_write_back(descriptor)
            with self._lock:
                replaced, self._files[path] = self._files.get(path), temporary
            temporary = replaced or ""
        finally:
            try:
                self._root.close_written(descriptor, temporary)
            finally:
                if temporary:
                    os.unlink(temporary, dir_fd=self._descriptor)

    def _name_all(self) -> None:
        if not self._files:
            return
        before = self._root.unsettled or set()
        self._root.unsettled = named = set()
        try:
            sync_all(self._descriptor, list(self._files.values()))
            for path, temporary in self._files.items():
                parent, _, name = path.rpartition("/")
                key = parent.removeprefix(self._root.path).removeprefix("/")
                with self._root.directory(key, create=True) as directory:
                    os.replace(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=directory)
                named.add(parent)
            sync_names(self._descriptor, named)
        except OSError as error:
            raise translate(error, self._root.path) from error
        finally:
            self._root.unsettled = before
