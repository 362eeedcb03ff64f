"""Signatures of the records that decide: which checkpoint counts, and what is meant to be.

Who may write records without the key can then still hinder a job, but not send it to another checkpoint, nor
start one that was stopped. A signature is an HMAC over the bytes of a record, its job, its key, and the
identity of the job's records, so a genuine record of another place (the standby, a test) does not count here:

```
identity.json                           a random id, and the place of these records; signed in itself
generation/main/0000000003.json
generation/main/0000000003.<key id>-<HMAC in hex>.signature     empty: the name is the signature
```

The signature is written before the record. A crash, or another writer that is faster, leaves a signature
without its record: that is harmless, since the bytes that it signs were never stored. The identity is made
with the first signature. Records of `sites/` are the same at both sites, and of no place.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streambank.core.errors import ConflictError, FormatError, IntegrityError, NotFoundError, RefusedError
from streambank.core.json_text import loads
from streambank.core.signing import VARIABLE, Keys, Signing, is_signed
from streambank.storage.locations import service_name
from streambank.storage.store import Store, read_record

SIGNATURE = re.compile(r"(\d{10})\.([0-9a-f]{16}-[0-9a-f]{64})\.signature")
IDENTITY = "identity.json"
_OF_NO_PLACE = "streambank record 1"
_OF_A_PLACE = "streambank record 2"
_OF_IDENTITIES = "streambank identity 1"
_VOUCH = "`streambank job sign-records --unsigned` signs them anew, and shows what they say."


@dataclass(frozen=True, slots=True)
class Identity:
    """Which records these are."""

    id: str
    place: str

    def signing(self, keys: Keys, job: str) -> Signing:
        """What signs it."""
        return Signing(keys, _OF_IDENTITIES, job, self.id, self.place)


class Signer:
    """Signs and verifies the records of one job; without keys it does neither.

    Args:
        of_place: Whether signatures hold for these records alone.
    """

    def __init__(self, store: Store, job: str, keys: Keys, *, of_place: bool = True) -> None:
        self.store = store
        self.job = job
        self.keys = keys
        self.of_place = of_place
        self._known: Identity | None = None  # as it was read last: not once more for each record

    def of_no_place(self) -> Signer:
        """The same for records that two places share."""
        return Signer(self.store, self.job, self.keys, of_place=False)

    def sign(
        self, key: str, data: bytes, identity: Identity | None = None, *, anywhere: bool = False
    ) -> None:
        """Sign a record with the first key, before it is written or after it.

        Args:
            identity: Whose record it is; that of the store when left out, which is made where there is none.
            anywhere: See `check`.
        """
        if self.keys:
            if self.of_place:
                identity = identity or self.identity(anywhere=anywhere) or self._begin()
            (name,) = self._signing(self.keys[:1], key, data, identity).names()
            self.store.write(f"{key.removesuffix('.json')}.{name}.signature", b"")

    def has_signed(self, key: str, data: bytes, names: Iterable[str], identity: Identity) -> bool:
        """Whether the first key has signed a record as it is; `names` are those in its folder."""
        return bool(is_signed(self._signing(self.keys[:1], key, data, identity), _those_of(key, names)))

    def check(self, key: str, data: bytes, names: Iterable[str], *, anywhere: bool = False) -> None:
        """Make sure that a record is signed, where there are keys.

        Args:
            names: The names in its folder, as they were listed before it was read.
            anywhere: Also where these records are those of another place: a site may reach the other one by
                another path, and has to read whether that is meant to run. What decides here asks
                `require_place`.

        Raises:
            IntegrityError: It is not (codes `not-signed`, `bad-signature`); or see `identity`.
        """
        if not self.keys:
            return
        if self.of_place and self._known is None:
            self._known = self.identity(anywhere=True)
        signed = self._is_signed(key, data, names)
        if not signed:
            # A listing that overlaps with a write can show the record without its signature, and the identity
            # may be another one by now: look again.
            if self.of_place:
                self._known = self.identity(anywhere=True)
            signed = self._is_signed(key, data, self.store.names(key.rpartition("/")[0]))
        if signed:
            return None if anywhere else self._check_place(self._known)
        if signed is False:
            raise IntegrityError(
                f"The record {self.store.uri}/{key} is not what was signed here.",
                code="bad-signature",
                hint="Somebody who may write among the job's records has changed it, brought it from other "
                f"ones, or removed {IDENTITY}; or it was signed before there was one. Look at it. If it is "
                "right, sign it anew, once for each job: `streambank job sign-records --unsigned`.",
            )
        raise IntegrityError(
            f"The record {self.store.uri}/{key} is not signed by a key of this installation.",
            code="not-signed",
            hint="Look at it. If it is right, sign it: `streambank job sign-records` (with several keys: "
            "`--unsigned`).",
        )

    def check_replaced(self, key: str, data: bytes, names: Iterable[str]) -> None:
        """Make sure that a record was signed before, where keys are replaced.

        With one key alone, records of before it have no signature.

        Raises:
            IntegrityError: It was not, or is not what was signed (codes `not-signed`, `bad-signature`).
        """
        try:
            self.check(key, data, names, anywhere=True)
        except IntegrityError as error:
            if error.code != "not-signed" or len(self.keys) > 1:
                raise

    def refuse_without_key(self, names: Iterable[str]) -> None:
        """Make sure that signed records are not used without a key.

        Raises:
            RefusedError: They were (code `signing-key-missing`).
        """
        if not self.keys and any(SIGNATURE.fullmatch(name) for name in names):
            raise self._key_missing()

    def identity(self, *, anywhere: bool = False) -> Identity | None:
        """Which records these are; None where none was signed since there are identities.

        Args:
            anywhere: Also that of another place: whose records these were.

        Raises:
            IntegrityError: It is that of another place (code `records-of-another-place`), or is not signed
                (`not-signed`, `bad-signature`).
            FormatError: It is damaged (`damaged-record`).
            RefusedError: There is one, and no key (`signing-key-missing`).
        """
        what = f"{self.store.uri}/{IDENTITY}"
        try:
            data = read_record(self.store, IDENTITY)
        except NotFoundError:
            return None
        if not self.keys:
            raise self._key_missing()
        try:
            said = loads(data)
            found = Identity(str(said["id"]), str(said["place"]))
            signed = is_signed(found.signing(self.keys, self.job), map(str, said["signatures"]))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"The record {what} cannot be read: {error!r}.",
                code="damaged-record",
                hint=f"It was cut off or edited. If the job's records are right, remove it: {_VOUCH}",
            ) from error
        if not signed:
            why = (
                "is not signed by a key of this installation" if signed is None else "is not what was signed"
            )
            raise IntegrityError(
                f"The record {what}, which says whose records these are, {why}.",
                code="not-signed" if signed is None else "bad-signature",
                hint=f"Look at the records. If they are right, {_VOUCH}",
            )
        if not anywhere:
            self._check_place(found)
        return found

    def require_place(self) -> None:
        """Make sure that these records are not those of another place, before anything rests on them."""
        if self.keys:
            self.identity()

    def _check_place(self, identity: Identity | None) -> None:
        if identity is not None and service_name(identity.place) != self._place():
            raise IntegrityError(
                f"The records in {self.store.uri} are those of {identity.place}.",
                code="records-of-another-place",
                hint="The same records, reached by another path (a host and its containers), need the same "
                f"path everywhere, {identity.place}: by a mount, or as `control`. Those of another site or "
                "environment do not count here. Only where they were moved for good: `streambank job "
                "sign-records` shows what they say and signs it, and then refuses them at the path before.",
            )

    def to_vouch(self, *, unsigned: bool, begin: bool = False) -> Identity:
        """The identity in whose name all records are to be signed anew; `keep` writes it afterwards.

        Records of another place get an identity of their own, since those may still be there. What the old
        one has signed is known to be so by `check` until then.

        Args:
            unsigned: Also where the identity that is there is not signed.
            begin: Write one where there is none to go on from: what is signed in its name stays so where the
                rest is cut off.
        """
        try:
            self._known = self.identity(anywhere=True)
        except IntegrityError as error:
            if not unsigned and (error.code != "not-signed" or len(self.keys) > 1):
                raise
        if self._known is not None and service_name(self._known.place) == self._place():
            return self._known
        made = Identity(secrets.token_hex(16), self._place())
        if begin and self._known is None:
            self.keep(made)
        return made

    def keep(self, identity: Identity, *, exclusive: bool = False) -> None:
        """Write the identity, signed by the first key."""
        signed = identity.signing(self.keys[:1], self.job).names()
        said: Mapping[str, Any] = {
            "id": identity.id,
            "place": identity.place,
            "signatures": signed,
        }
        self.store.write(
            IDENTITY, (json.dumps(said, ensure_ascii=False) + "\n").encode(), exclusive=exclusive
        )

    def move_to(self, target: Signer) -> None:
        """Let the same records have their identity at another place, where they are not used yet."""
        found = self.identity()
        if found is not None and target.identity() is None:
            target.keep(replace(found, place=target._place()))

    def _begin(self) -> Identity:
        """The identity, made now or by another process just before."""
        made = Identity(secrets.token_hex(16), self._place())
        try:
            self.keep(made, exclusive=True)
        except ConflictError as error:
            if error.code != "exists":
                raise
        return self.identity() or made

    def _place(self) -> str:
        return str(service_name(self.store.uri))

    def _key_missing(self) -> RefusedError:
        return RefusedError(
            f"The records of job {self.job} in {self.store.uri} are signed, and there is no key here.",
            code="signing-key-missing",
            hint=f"Name the file with the keys in {VARIABLE}.",
        )

    def _is_signed(self, key: str, data: bytes, names: Iterable[str]) -> bool | None:
        return is_signed(self._signing(self.keys, key, data, self._known), _those_of(key, names))

    def _signing(self, keys: Keys, key: str, data: bytes, identity: Identity | None) -> Signing:
        # Without an identity nothing of a place is signed: none has an empty id.
        whose = (_OF_A_PLACE, "" if identity is None else identity.id) if self.of_place else (_OF_NO_PLACE,)
        signing = Signing(keys, *whose, self.job, key)
        signing.update(data)
        return signing


def _those_of(key: str, names: Iterable[str]) -> list[str]:
    number = key.rpartition("/")[2].removesuffix(".json")
    found = (SIGNATURE.fullmatch(name) for name in names)
    return [match[2] for match in found if match is not None and match[1] == number]
