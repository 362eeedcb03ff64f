"""Signing keys, and HMACs by them: proof that something was written by who has a key.

Keys come from a file, which the environment variable `STREAMBANK_SIGNING_KEYS` names. The first one signs and
each of them verifies, so a key can be replaced: put the new one first, sign again, drop the old.

Signed are savepoints (repository/signatures.py), and the records of a job that decide what it
does (control/signed.py).

Source: RFC 2104 (HMAC).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streambank.core.errors import InputError

VARIABLE = "STREAMBANK_SIGNING_KEYS"
_ID_LABEL = b"streambank key id"
_LEAST_BYTES = 32
_HEX = re.compile(r"[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Key:
    """A key; it prints as its id, and is never part of a message."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Which key it is: 16 hex digits, from which nothing of it can be told."""
        return hmac.new(self.secret, _ID_LABEL, hashlib.sha256).hexdigest()[:16]


Keys = Sequence[Key]


class Signing:
    """Takes in bytes, and knows then how each key signs them."""

    def __init__(self, keys: Keys, label: str, *names: str) -> None:
        self._by_id = {key.id: hmac.new(key.secret, digestmod=hashlib.sha256) for key in keys}
        for part in (label, *names):
            encoded = part.encode()
            self.update(len(encoded).to_bytes(8, "big") + encoded)

    def update(self, data: bytes) -> None:
        for one in self._by_id.values():
            one.update(data)

    def passing(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same chunks, taken in on the way."""
        for chunk in chunks:
            self.update(chunk)
            yield chunk

    def names(self) -> list[str]:
        """The signature of each key, as its file is called; the first is that of the key that signs."""
        return [f"{key_id}-{one.hexdigest()}" for key_id, one in self._by_id.items()]


def is_signed(signing: Signing, there: Iterable[str]) -> bool | None:
    """Whether one of the keys gives one of the names; None where no name is by any of these keys."""
    known, found = set(signing.names()), set(there)
    if known & found:
        return True
    ids = {name.partition("-")[0] for name in known}
    return False if ids & {name.partition("-")[0] for name in found} else None


def signing_keys() -> Keys:
    """The keys of this installation; none where the variable names no file.

    Raises:
        InputError: The file cannot be read, or a line in it is no key (code `bad-signing-key`).
    """
    named = os.environ.get(VARIABLE)
    return read_keys(Path(named)) if named else ()


def require_keys(keys: Keys) -> None:
    """Make sure that there is a key to sign with.

    Raises:
        InputError: There is none (code `bad-signing-key`).
    """
    if not keys:
        raise InputError(
            "There is no key to sign with.",
            code="bad-signing-key",
            hint=f"Make one with `streambank key FILE`, and name the file in {VARIABLE}.",
        )


def read_keys(file: Path) -> Keys:
    """The keys in a file: one a line, in hex, 32 bytes or more; lines may be empty, or begin with `#`.

    Raises:
        InputError: It cannot be read, has none, or a line is no key (code `bad-signing-key`).
    """
    try:
        lines = [line.strip() for line in file.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
        ) from error
    texts = [line for line in lines if line and not line.startswith("#")]
    if not texts:
        raise _bad(f"{file} holds no key")
    for number, text in enumerate(texts, 1):
        if len(text) < 2 * _LEAST_BYTES or len(text) % 2 or not _HEX.fullmatch(text):
            raise _bad(f"key {number} in {file} is not {_LEAST_BYTES} bytes or more, in hex")
    return tuple(Key(bytes.fromhex(text)) for text in texts)


def new_key(file: Path) -> Key:
    """Make a file with a new key, which only its owner may read.

    Raises:
        InputError: The file is there already, or cannot be made (code `bad-signing-key`).
    """
    secret = secrets.token_bytes(_LEAST_BYTES)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _bad(f"{file} cannot be made: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as writer:
        writer.write(f"{secret.hex()}\n")
    return Key(secret)


def _bad(what: str) -> InputError:
    return InputError(
        f"The signing key is wrong: {what}.",
        code="bad-signing-key",
        hint="`streambank key FILE` makes one. A new key belongs in the first line, the old one below it.",
    )
