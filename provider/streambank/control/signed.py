"""Signatures of the records that decide: which checkpoint counts, and what is meant to be.

Who may write records without the key can then still hinder a job, but not send it to another checkpoint, nor
start one that was stopped. A signature is an HMAC over the bytes of a record, its job and its key:

```
generation/main/0000000003.json
generation/main/0000000003.<key id>-<HMAC in hex>.signature     empty: the name is the signature
```

It is written before the record. A crash, or another writer that is faster, leaves a signature without its
record: that is harmless, since the bytes that it signs were never stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from streambank.core.errors import IntegrityError, RefusedError
from streambank.core.signing import VARIABLE, Keys, Signing, is_signed
from streambank.storage.store import Store

SIGNATURE = re.compile(r"(\d{10})\.([0-9a-f]{16}-[0-9a-f]{64})\.signature")
_LABEL = "streambank record 1"


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and verifies the records of one job; without keys it does neither.

    Attributes:
        job: The job's name.
        keys: The keys of this installation.
    """

    job: str
    keys: Keys

    def sign(self, store: Store, key: str, data: bytes) -> None:
        """Sign a record with the first key, before it is written or after it."""
        if self.keys:
            (name,) = self._signing(self.keys[:1], key, data).names()
            store.write(f"{key.removesuffix('.json')}.{name}.signature", b"")

    def has_signed(self, key: str, data: bytes, names: Iterable[str]) -> bool:
        """Whether the first key has signed a record as it is; `names` are those in its folder."""
        return bool(is_signed(self._signing(self.keys[:1], key, data), _those_of(key, names)))

    def check(self, store: Store, key: str, data: bytes, names: Iterable[str]) -> None:
        """Make sure that a record is signed, where there are keys.

        Args:
            store: The job's records.
            key: The record's key.
            data: Its bytes.
            names: The names in its folder, as they were listed before it was read.

        Raises:
            IntegrityError: It is not (codes `not-signed`, `bad-signature`).
        """
        if not self.keys:
            return
        signing = self._signing(self.keys, key, data)
        if is_signed(signing, _those_of(key, names)):
            return
        # A listing that overlaps with a write can show the record without its signature: list again.
        signed = is_signed(signing, _those_of(key, store.names(key.rpartition("/")[0])))
        if signed:
            return
        if signed is False:
            raise IntegrityError(
                f"The record {store.uri}/{key} is not what was signed.",
                code="bad-signature",
                hint="It was changed by somebody who may write among the job's records. Look at it.",
            )
        raise IntegrityError(
            f"The record {store.uri}/{key} is not signed by a key of this installation.",
            code="not-signed",
            hint="Look at it. If it is right, sign it: `streambank job sign-records` (with several keys: "
            "`--unsigned`).",
        )

    def check_replaced(self, store: Store, key: str, data: bytes, names: Iterable[str]) -> None:
        """Make sure that a record was signed before, where keys are replaced.

        With one key alone, records of before it have no signature.

        Raises:
            IntegrityError: It was not, or is not what was signed (codes `not-signed`, `bad-signature`).
        """
        try:
            self.check(store, key, data, names)
        except IntegrityError as error:
            if error.code != "not-signed" or len(self.keys) > 1:
                raise

    def refuse_without_key(self, store: Store, names: Iterable[str]) -> None:
        """Make sure that signed records are not used without a key.

        Args:
            store: The job's records.
            names: The names in a folder of records.

        Raises:
            RefusedError: They were (code `signing-key-missing`).
        """
        if not self.keys and any(SIGNATURE.fullmatch(name) for name in names):
            raise RefusedError(
                f"The records of job {self.job} in {store.uri} are signed, and this installation has no key.",
                code="signing-key-missing",
                hint=f"Name the file with the keys in {VARIABLE}.",
            )

    def _signing(self, keys: Keys, key: str, data: bytes) -> Signing:
        signing = Signing(keys, _LABEL, self.job, key)
        signing.update(data)
        return signing


def _those_of(key: str, names: Iterable[str]) -> list[str]:
    """The signatures of one record, among the names of its folder."""
    number = key.rpartition("/")[2].removesuffix(".json")
    found = (SIGNATURE.fullmatch(name) for name in names)
    return [one[2] for one in found if one is not None and one[1] == number]
