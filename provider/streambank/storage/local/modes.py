"""Who may look into a directory of this machine, and making another one that no more users may look into.

State is personal data often enough. What is copied out of a directory that is closed to others must not be
open to them: neither in a repository, nor in a restored checkpoint, nor where state is laid out for Spark.
Files need no modes of their own for that: nobody gets past the directory that they are below.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streambank.storage.local.errors import translate
from streambank.storage.locations import local_path

_RECORDED = re.compile(r"0[0-7]{3}")
_OWN = 0o700


@dataclass(frozen=True, slots=True)
class Openness:
    """Who may look into a directory.

    Attributes:
        mode: Its permission bits, without those of users who may not read what is in it.
    """

    mode: int
    group: int | None = None

    def __str__(self) -> str:
        return f"{self.mode:04o}"

    def readers(self) -> Openness:
        """The same users, with whatever rights the umask leaves them: those who share a place write there."""
        wide = sum(7 << shift for shift in (6, 3, 0) if self.mode >> shift & 4)
        return Openness(wide | _OWN, self.group)

    @classmethod
    def parse(cls, text: object) -> Openness | None:
        """From what `str` gave; None where it is nothing of the kind."""
        return cls(int(text, 8)) if isinstance(text, str) and _RECORDED.fullmatch(text) else None


def openness(location: str) -> Openness | None:
    """Who may look into a directory, and read `metadata` in it; None where it is not there, or elsewhere."""
    path = local_path(location)
    if path is None:
        return None
    try:
        about = path.stat()
    except OSError:
        return None
    mode = about.st_mode & 0o777
    with suppress(OSError):
        inner = (path / "metadata").stat().st_mode
        for shift in (3, 0):
            if not inner >> shift & 4:
                mode &= ~(7 << shift)
    return Openness(mode | _OWN, about.st_gid)


def make_directory(location: str, like: Openness | None) -> None:
    """Make a directory of this machine, with its parents, that no more users may look into.

    Args:
        like: What it must not be more open than; None to leave that to the umask and to a later write.
    """
    path = local_path(location)
    if path is None or like is None or os.path.lexists(path):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another writer was faster
            path.mkdir(mode=like.mode)
    except OSError as error:
        raise translate(error, str(path)) from error
    if like.group is not None and path.stat().st_gid != like.group:
        with suppress(OSError):  # only a member of that group may
            os.chown(path, -1, like.group)


def close_directory(location: str, mode: int) -> None:
    """Let others look into a directory of this machine by `mode` at most; nothing where we may not say so."""
    make_directory(location, Openness(mode))
    path = local_path(location)
    if path is not None:
        with suppress(OSError):
            about = path.stat()
            if about.st_uid == os.geteuid() and about.st_mode & 0o777 & ~mode:
                Path(path).chmod(about.st_mode & 0o7000 | (about.st_mode & mode))
