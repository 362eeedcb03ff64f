"""Digests: the names of objects. Written as `blake3:<64 hex digits>` everywhere outside of keys.

BLAKE3 is the default (5.2 GB/s a core where SHA-256 through hashlib did 0.37 on the same machine). SHA-256 is
for repositories that must be read where only the standard library is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Protocol

from streambank.core.errors import FormatError, IntegrityError, StorageError

DEFAULT_DIGEST = "blake3"
_DIGEST = re.compile(r"(blake3|sha256):([0-9a-f]{64})")


class Hasher(Protocol):
    """What every digest algorithm here can do."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Take in more bytes."""

    def hexdigest(self) -> str:
        """The digest of all bytes so far, as hex digits."""


@cache
def _blake3_type() -> Callable[[], Hasher]:
    try:
        from blake3 import blake3
    except ImportError as error:
        raise StorageError(
            "The package blake3, which this repository's digests need, is not installed.",
            code="missing-package",
            hint="Install blake3, or create the repository with SHA-256 digests.",
        ) from error
    return blake3


def _blake3() -> Hasher:
    return _blake3_type()()


ALGORITHMS: dict[str, Callable[[], Hasher]] = {"blake3": _blake3, "sha256": hashlib.sha256}
"""Name -> a new hasher."""


def new_hasher(name: str) -> Hasher:
    """A hasher by the name of its algorithm.

    Raises:
        FormatError: The name is not known (code `unknown-digest`).
        StorageError: Its package is missing (code `missing-package`).
    """
    make = ALGORITHMS.get(name)
    if make is None:
        raise FormatError(
            f"{name!r} is not a known digest algorithm.",
            code="unknown-digest",
            hint=f"Known algorithms: {', '.join(ALGORITHMS)}. A newer Streambank may know it.",
        )
    return make()


def digest_of(name: str, data: bytes | Iterable[bytes]) -> str:
    """The digest of some bytes, as `name:hex`."""
    hasher = new_hasher(name)
    if isinstance(data, bytes):
        hasher.update(data)
    else:
        for chunk in data:
            hasher.update(chunk)
    return f"{name}:{hasher.hexdigest()}"


def is_digest(text: object) -> bool:
    """Whether this is a digest as written everywhere: `blake3:<64 hex digits>`."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def split_digest(text: str) -> tuple[str, str]:
    """Algorithm and hex digits of a digest.

    Raises:
        IntegrityError: It is none (code `bad-digest`).
    """
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise IntegrityError(
            f"{text!r} is not a digest.",
            code="bad-digest",
            hint="The record that contains it was edited or damaged. Use another savepoint.",
        )
    return match[1], match[2]
