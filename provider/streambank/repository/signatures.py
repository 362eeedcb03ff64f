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


def signing_of(keys: Keys, job: str, savepoint: str, data: Iterable[bytes] = ()) -> Signing:
    """What takes in the bytes of a savepoint's manifest, and has taken in some."""
    signing = Signing(keys, _LABEL, job, savepoint)
    for chunk in data:
        signing.update(chunk)
    return signing


def signatures_of(store: Store, job: str, savepoint: str) -> Sequence[str]:
    """The signatures that lie beside a savepoint, whoever wrote them."""
    return store.names(f"{FOLDER}/{job}/{savepoint}")


def add_signature(store: Store, job: str, savepoint: str, name: str) -> None:
    """Write a signature, before the manifest that it is of or after it."""
    store.write(f"{FOLDER}/{job}/{savepoint}/{name}", b"")


def lacking_signatures(source: Store, target: Store, job: str, savepoint: str) -> list[str]:
    """Those signatures of a savepoint in one repository that another one lacks."""
    there = signatures_of(target, job, savepoint)
    lacking = [name for name in signatures_of(source, job, savepoint) if name not in there]
    return lacking[:_MOST_COPIED]


def require_signature(store: Store, job: str, savepoint: str, signing: Signing) -> None:
    """Make sure that one of the keys has signed what was taken in.

    Raises:
        IntegrityError: None has (code `not-signed`), or what one has signed is not this (`bad-signature`).
    """
    signed = is_signed(signing, signatures_of(store, job, savepoint))
    if signed:
        return
    if signed is False:
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
