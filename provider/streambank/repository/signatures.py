"""Signatures of savepoints: that one was made by who has a key, and not only by a writer of the repository.

Digests find every changed byte, but a writer of the repository can write digests as well. A signature is an
HMAC-SHA256 over the bytes of a manifest, its job and its id; the manifest has the digest of everything else.

```
signatures/<job>/<savepoint>/<key id>-<HMAC in hex>     empty: the name is the signature
```

It is written before the manifest, so that a savepoint that exists is signed. Keys come from a file, which
the environment variable `STREAMBANK_SIGNING_KEYS` names. The first one signs and each of them verifies, so a
key can be replaced: put the new one first, sign again, drop the old.

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

from streambank.core.errors import InputError, IntegrityError, RefusedError
from streambank.storage.store import Store

VARIABLE = "STREAMBANK_SIGNING_KEYS"
FOLDER = "signatures"
UNSIGNED = ("not-signed", "bad-signature")
"""Codes of a savepoint that no key of ours has signed as it is."""
_LABEL = b"streambank savepoint 1"
_ID_LABEL = b"streambank key id"
_LEAST_BYTES = 32
_HEX = re.compile(r"[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Key:
    """A key; it prints as its id, and is never part of a message.

    Attributes:
        secret: Its bytes.
    """

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Which key it is: 16 hex digits, from which nothing of it can be told."""
        return hmac.new(self.secret, _ID_LABEL, hashlib.sha256).hexdigest()[:16]


Keys = Sequence[Key]


class Signing:
    """Takes in the bytes of a manifest, and knows then how each key signs them.

    Args:
        keys: The keys.
        job: `job` or `job/query`.
        savepoint: The savepoint's id.
    """

    def __init__(self, keys: Keys, job: str, savepoint: str) -> None:
        self._by_id = {key.id: hmac.new(key.secret, digestmod=hashlib.sha256) for key in keys}
        for part in (_LABEL, job.encode(), savepoint.encode()):
            self.update(len(part).to_bytes(8, "big") + part)

    def update(self, data: bytes) -> None:
        """Take in the next bytes."""
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


def signatures_of(store: Store, job: str, savepoint: str) -> Sequence[str]:
    """The signatures that lie beside a savepoint, whoever wrote them."""
    return store.names(f"{FOLDER}/{job}/{savepoint}")


def add_signature(store: Store, job: str, savepoint: str, name: str) -> None:
    """Write a signature, before the manifest that it is of or after it."""
    store.write(f"{FOLDER}/{job}/{savepoint}/{name}", b"")


def require_signature(store: Store, job: str, savepoint: str, signing: Signing) -> None:
    """Make sure that one of the keys has signed what was taken in.

    Raises:
        IntegrityError: None has (code `not-signed`), or what one has signed is not this (`bad-signature`).
    """
    known = signing.names()
    there = set(signatures_of(store, job, savepoint))
    if there.intersection(known):
        return
    ids = {name.partition("-")[0] for name in known}
    if ids & {name.partition("-")[0] for name in there}:
        raise IntegrityError(
            f"The savepoint {savepoint} of {job} in {store.uri} is not what was signed.",
            code="bad-signature",
            hint="Its manifest was changed by somebody who may write there. Use another one, or a replica.",
        )
    raise IntegrityError(
        f"The savepoint {savepoint} of {job} in {store.uri} is not signed by a key of this installation.",
        code="not-signed",
        hint="Use another one. If you know where it comes from, sign it: `streambank sign`.",
    )


def refuse_without_key(store: Store, job: str, savepoint: str | None = None) -> None:
    """Make sure that signatures are not given up in silence: where there are some, there has to be a key.

    Args:
        store: The repository.
        job: `job` or `job/query`.
        savepoint: The one that is used; None for a new one, where those of the whole job count.

    Raises:
        RefusedError: They were (code `signing-key-missing`).
    """
    if store.names(f"{FOLDER}/{job}" if savepoint is None else f"{FOLDER}/{job}/{savepoint}"):
        raise RefusedError(
            f"Savepoints of {job} in {store.uri} are signed, and this installation has no key.",
            code="signing-key-missing",
            hint=f"Name the file with the keys in {VARIABLE}. To give signatures up, remove "
            f"{store.uri}/{FOLDER}/{job}: from then on a writer of the repository can make a savepoint.",
        )


def signing_keys() -> Keys:
    """The keys of this installation; none where the variable names no file.

    Raises:
        InputError: The file cannot be read, or a line in it is no key (code `bad-signing-key`).
    """
    named = os.environ.get(VARIABLE)
    return read_keys(Path(named)) if named else ()


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
