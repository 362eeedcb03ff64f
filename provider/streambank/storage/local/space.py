"""How much room the disks of this machine have left."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from streambank.core.errors import StorageError
from streambank.storage.local.errors import translate
from streambank.storage.local.mounts import mount_of

FULL_BYTES = 1 << 20
"""A disk with less than 1 MiB left is full: the next file of a batch, or of a savepoint, has no room."""
FULL_FILES = 16
"""So is one that can take fewer files."""


@dataclass(frozen=True, slots=True)
class Space:
    """What is left of the file system that a path is on.

    Attributes:
        point: Where it is mounted; the path itself where this machine does not tell.
        free_bytes: How much users other than root can still write.
        total_bytes: How large it is; 0 where it does not say, and so does not say what is free, either.
        free_files: How many files it can still take; None where it has no such limit.
    """

    point: str
    device: int
    free_bytes: int
    total_bytes: int
    free_files: int | None
    read_only: bool

    @property
    def usable_bytes(self) -> int:
        """How much can still be written: nothing where no file can be made, either."""
        no_file = self.free_files is not None and self.free_files < FULL_FILES
        return 0 if self.read_only or no_file else self.free_bytes

    def refusal(self, what: str) -> StorageError | None:
        """Why nothing more can be written there; None where it can. `what` begins the sentence."""
        on = f"{what} is on the disk mounted at {self.point}"
        if self.read_only:
            return StorageError(
                f"{on}, and that is read-only.",
                code="read-only",
                hint=f"See why {self.point} is mounted read-only: after an error of the disk the kernel does "
                "that by itself (dmesg). Then mount it for writing.",
            )
        if self.free_files is not None and self.free_files < FULL_FILES:
            return StorageError(
                f"{on}, and that can take no more files (inodes), although it has {self.free_bytes:,} bytes.",
                code="disk-full",
                hint=f"Remove files below {self.point}; `df -i` shows how many it has.",
            )
        if self.free_bytes < FULL_BYTES and self.total_bytes:
            return StorageError(
                f"{on}, and that is full: {self.free_bytes:,} bytes of {self.total_bytes:,} are free.",
                code="disk-full",
                hint=f"Free some space below {self.point}, or make that file system larger.",
            )
        return None


def space_at(path: str | os.PathLike[str]) -> Space:
    """What is left where a path is, or would be."""
    place = Path(os.path.realpath(path))
    while not os.path.exists(place) and place != place.parent:  # noqa: PTH110 - what may not be seen is not
        place = place.parent
    try:
        found, device = os.statvfs(place), place.stat().st_dev
    except OSError as error:
        raise translate(error, str(path)) from error
    mount = mount_of(place)
    return Space(
        mount.point if mount is not None else str(place),
        device,
        found.f_bavail * found.f_frsize,
        found.f_blocks * found.f_frsize,
        # btrfs and network file systems say 0 of 0: they make files as they need them.
        found.f_favail if found.f_files else None,
        bool(found.f_flag & os.ST_RDONLY),
    )
