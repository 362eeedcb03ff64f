"""Signatures of savepoints: that one was made by who has a key, and not only by a writer of the repository.

Digests find every changed byte, but a writer of the repository can write digests as well. A signature is an
HMAC-SHA256 over the bytes of a manifest, its job and its id; the manifest has the digest of everything else.

```
signatures/<job>/<savepoint>/<key id>-<HMAC in hex>     empty: the name is the signature
```

It is written before the manifest, so that a savepoint that exists is signed. The keys: core/signing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streambank.core.errors import IntegrityError, RefusedError
from streambank.core.signing import VARIABLE, Keys, Signing, is_signed
from streambank.storage.store import Store

FOLDER = "signatures"
UNSIGNED = ("not-signed", "bad-signature")
"""Codes of a savepoint that no key of ours has signed as it is."""
_LABEL = "streambank savepoint 1"
_MOST_COPIED = 20
"""A writer of a replica could fill its folder of signatures."""


class Signatures:
    """The signatures of a repository's savepoints.

    Args:
        keys: The first one signs, and each verifies; without keys neither is done.
    """

    def __init__(self, store: Store, keys: Keys = ()) -> None:
        self.store = store
        self.keys = keys

    def of(self, job: str, savepoint: str) -> Sequence[str]:
        """Those that lie beside a savepoint, whoever wrote them."""
        return self.store.names(f"{FOLDER}/{job}/{savepoint}")

    def lacking(self, source: Signatures, job: str, savepoint: str) -> list[str]:
        """Those of a savepoint in another repository that this one lacks."""
        there = self.of(job, savepoint)
        return [name for name in source.of(job, savepoint) if name not in there][:_MOST_COPIED]

    def add(self, job: str, savepoint: str, names: Iterable[str]) -> None:
        """Write signatures, before the manifest that they are of or after it."""
        for name in names:
            self.store.write(f"{FOLDER}/{job}/{savepoint}/{name}", b"")

    def signing(
        self, job: str, savepoint: str, data: Iterable[bytes] = (), *, first: bool = False
    ) -> Signing:
        """What takes in the bytes of a manifest, and has taken in some.

        Args:
            first: Only the key that signs counts.
        """
        signing = Signing(self.keys[:1] if first else self.keys, _LABEL, job, savepoint)
        for chunk in data:
            signing.update(chunk)
        return signing

    def sign(self, job: str, savepoint: str, data: Iterable[bytes]) -> str:
        """Sign the bytes of a manifest with the first key; the id of the key."""
        self.add(job, savepoint, self.signing(job, savepoint, data, first=True).names())
        return self.keys[0].id

    def has_signed(self, job: str, savepoint: str, data: Iterable[bytes]) -> bool:
        """Whether the first key has signed these bytes of a manifest."""
        return bool(is_signed(self.signing(job, savepoint, data, first=True), self.of(job, savepoint)))

    def require(self, job: str, savepoint: str, signing: Signing) -> None:
        """Make sure that one of the keys has signed what was taken in, where there are keys.

        Raises:
            IntegrityError: None has (code `not-signed`), or what one has signed is not this
                (`bad-signature`).
        """
        signed = is_signed(signing, self.of(job, savepoint)) if self.keys else True
        if signed is False:
            raise IntegrityError(
                f"The savepoint {savepoint} of {job} in {self.store.uri} is not what was signed.",
                code="bad-signature",
                hint="Its manifest was changed by somebody who may write there. Use another one, or a "
                "replica.",
            )
        if signed is None:
            raise IntegrityError(
                f"The savepoint {savepoint} of {job} in {self.store.uri} is not signed by a key of this "
                "installation.",
                code="not-signed",
                hint="Use another one. If you know where it comes from, sign it: `streambank sign`.",
            )

    def require_key(self, job: str, savepoint: str | None = None) -> None:
        """Make sure that signatures are not given up in silence: where there are some, there has to be a key.

        Args:
            savepoint: The one that is used; None for a new one, where those of the whole job count.

        Raises:
            RefusedError: They were (code `signing-key-missing`).
        """
        folder = f"{FOLDER}/{job}"
        if not self.keys and self.store.names(folder if savepoint is None else f"{folder}/{savepoint}"):
            raise RefusedError(
                f"Savepoints of {job} in {self.store.uri} are signed, and this installation has no key.",
                code="signing-key-missing",
                hint=f"Name the file with the keys in {VARIABLE}. To give signatures up, remove "
                f"{self.store.uri}/{folder}: from then on a writer of the repository can make a savepoint.",
            )
