"""Room for the last words of a driver, kept beside a job's records where those lie on a disk of this machine.

```
<control>/<job>/reserve/01 ... 32      files of zeros; each is room for one more record: a file, and its bytes
```
Where a record cannot be written since the disk is full, one of them is deleted, and the record is written
again. One by one, for what is free on a full disk is taken by whoever writes next, such as a log. They are
files, not one large one, since a disk can run out of files before it runs out of bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from streambank.core.errors import StorageError
from streambank.storage import local_path
from streambank.storage.local.errors import translate
from streambank.storage.store import Store

T = TypeVar("T")

RESERVE = "reserve"
"""The folder among a job's records."""
FILES = 32
FILE_BYTES = 64 << 10
"""32 files of 64 KiB are 2 MiB."""
_SPARE = 8
"""The reserve is made only on a disk that has so many times the room for it: it must not fill one up."""


def keep_reserve(store: Store) -> int:
    """Make what is missing of a job's reserve; how many files it has now, 0 where its records are remote."""
    folder = _folder(store)
    if folder is None:
        return 0
    try:
        if folder.is_symlink():
            return 0  # nothing is written, nor removed, where a link leads
        there = set(os.listdir(folder)) if folder.is_dir() else set()  # noqa: PTH208 - names are enough
        missing = sorted(_names() - there)
        disk = os.statvfs(folder.parent)
        if not missing or disk.f_bavail * disk.f_frsize < _SPARE * FILES * FILE_BYTES:
            return len(there)
        folder.mkdir(exist_ok=True)
        for name in missing:
            _make(folder / name)
        return FILES
    except FileNotFoundError:
        return 0  # the records were removed or moved since
    except OSError as error:
        raise translate(error, str(folder)) from error


def _names() -> set[str]:
    return {f"{number:02d}" for number in range(1, FILES + 1)}


def _make(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, FILE_BYTES)
    finally:
        os.close(descriptor)


def give_room(store: Store) -> bool:
    """Free one part of a job's reserve; whether there was one."""
    folder = _folder(store)
    if folder is None:
        return False
    with suppress(OSError):  # what lies in another place is not ours: no link is followed
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in sorted(_names() & set(os.listdir(descriptor)), reverse=True):  # noqa: PTH208
                with suppress(FileNotFoundError):  # another process has taken it
                    os.unlink(name, dir_fd=descriptor)
                    return True
        finally:
            os.close(descriptor)
    return False


def with_room(store: Store, write: Callable[[], T]) -> T:
    """What a write gives; where the disk is full it is made again, each time with a part of the reserve less.

    Raises:
        StorageError: There is no room, and no reserve left.
    """
    while True:
        try:
            return write()
        except StorageError as error:
            if error.code != "disk-full" or not give_room(store):
                raise


def _folder(store: Store) -> Path | None:
    root = local_path(store.uri)
    return None if root is None else root / RESERVE
