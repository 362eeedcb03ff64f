"""A disk that is really full: a small file system in memory, where this user may mount one.

Elsewhere `FullStore` stands in for it.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streambank.storage.local.errors import translate
from streambank.storage.local.store import LocalStore
from streambank.storage.names import is_temporary


class SmallDisk:
    """A mounted file system of some MB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, but_bytes: int = 0) -> None:
        """Take every byte that is free, but for some."""
        chunk = 1 << 20
        with self._filler.open("ab", buffering=0) as file:
            while chunk:
                try:
                    file.write(bytes(chunk))
                except OSError:
                    chunk //= 2
        os.truncate(self._filler, self._filler.stat().st_size - but_bytes)

    def use_up_files(self) -> None:
        """Take every file that the file system can have, and hardly any byte."""
        with suppress(OSError):
            for number in range(1 << 20):
                (self.folder / f"file-{number}").touch()

    def free(self) -> None:
        for path in (self._filler, *self.folder.glob("file-*")):
            path.unlink(missing_ok=True)

    def remount(self, option: str) -> None:
        """Mount it with another option, such as `ro`."""
        subprocess.run(["mount", "-o", f"remount,{option}", str(self.folder)], check=True)


@contextmanager
def small_disk(folder: Path, size_bytes: int = 16 << 20, *, files: int | None = None) -> Iterator[SmallDisk]:
    """Mount one for the `with` block.

    Args:
        files: How many files it can have; None for enough.

    Raises:
        PermissionError: This user may not mount.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size_bytes}" + ("" if files is None else f",nr_inodes={files}")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        raise PermissionError(mounted.stderr)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class FullStore(LocalStore):
    """A directory of this machine that has no room for another file while `full`.

    Each file that is deleted below it makes room for one. What files say can be replaced where they lie,
    unless it is `stuck`, too.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.stuck = False
        self._files: int | None = None

    @property
    def full(self) -> bool:
        return self._files is not None

    @full.setter
    def full(self, full: bool) -> None:
        self._files = self._count() if full else None

    def write(self, key: str, data: bytes | Iterable[bytes], *, exclusive: bool = False) -> None:
        if self._files is not None and self._count() >= self._files:
            raise translate(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), f"{self.root}/{key}")
        super().write(key, data, exclusive=exclusive)

    def overwrite(self, key: str, data: bytes) -> None:
        if self.stuck:
            raise translate(OSError(errno.EROFS, os.strerror(errno.EROFS)), f"{self.root}/{key}")
        super().overwrite(key, data)

    def _count(self) -> int:
        return sum(not is_temporary(name) for _, _, files in os.walk(self.root) for name in files)
