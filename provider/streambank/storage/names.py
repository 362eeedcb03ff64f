"""Which keys may name a file inside a store.

Keys come from manifests, directory listings and command lines, all of which may be hostile. They are checked
here and nowhere else, so that no path can climb out of a root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from streambank.core.errors import InputError

TEMPORARY_PREFIX = ".streambank-"
TEMPORARY_SUFFIX = ".tmp"

# No control characters (C0, DEL, C1), no backslash, no lone surrogates (a name that is not UTF-8 on disk), no
# `.` or `..`.
_CHARACTERS = re.compile(r"[^\\\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
FAR = 100_000_000
"""A gap between numbers in names that no history has: files are numbered one by one, so a gap is as many
files that were pruned, or that this place has missed: one a second for three years."""
MAX_KEY_LENGTH = 4000
"""Longest key in characters; a path on Linux ends at 4,096 bytes."""


def is_key(key: str) -> bool:
    """Whether this may name a file below a root: relative, no empty part, `.` or `..`, all printable."""
    if len(key) > MAX_KEY_LENGTH or _CHARACTERS.fullmatch(key) is None:
        return False
    framed = f"/{key}/"
    return "//" not in framed and "/./" not in framed and "/../" not in framed


def is_part(name: str) -> bool:
    """Whether a name that a directory lists may be a part of a key."""
    return _CHARACTERS.fullmatch(name) is not None


def near(numbers: Iterable[int]) -> list[int]:
    """Numbers in names of files, ascending, without those that no history leads to.

    Whoever may write one file could use up all numbers that there are, or be the newest for ever.
    """
    found = sorted(numbers)
    for before, (at, number) in zip([0, *found], enumerate(found), strict=False):
        if number - before > FAR:
            return found[:at]
    return found


def check_key(key: str) -> str:
    """The same key, if it may name a file below a root.

    Raises:
        InputError: It may not (code `bad-key`).
    """
    if not is_key(key):
        raise InputError(
            f"{key!r} cannot name a file of a store.",
            code="bad-key",
            hint="Keys are relative paths without '.', '..', backslashes and control characters.",
        )
    return key


def check_prefix(prefix: str) -> str:
    """The same prefix, if it is empty or a key.

    Raises:
        InputError: It is neither (code `bad-key`).
    """
    return check_key(prefix) if prefix else prefix


def is_temporary(name: str) -> bool:
    """Whether a file name is that of an unfinished write of ours."""
    return name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX)
