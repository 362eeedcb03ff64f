"""Streams of numbered, create-only JSON records: how a job remembers, on any store.

A conditional create is the one primitive that every storage has, so nothing here is ever updated: a change is
the next number, and of two writers that want the same number exactly one gets it.

Old records may be deleted, never the newest one, and a number is never used again: before it deletes, `drop`
leaves a mark `<number>.pruned.json`, up to which numbers are used up, and whoever has created a record looks
for such a mark afterwards. A writer that chose a number, stood still while others wrote and pruned, and then
finds that number free, so takes its own record back and chooses again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from streambank.control.signed import SIGNATURE, Identity, Signer
from streambank.core.errors import (
    ConflictError,
    FormatError,
    IntegrityError,
    NotFoundError,
    StorageError,
    StreambankError,
)
from streambank.core.json_text import loads
from streambank.core.shape import HINT, decode
from streambank.storage.names import near
from streambank.storage.store import MAX_RECORD_BYTES, Overwriting, Store, read_record

JsonDict = dict[str, Any]
T = TypeVar("T")

_NAME = re.compile(r"(\d{10})\.json")
_MARK = re.compile(r"(\d{10})\.pruned\.json")
_PRUNED = ".pruned"
_ANY = re.compile(r"(\d{10})(?:\.[a-z]+)?\.json")
_TRIES = 1000
_NO_ROOM = frozenset({"disk-full", "no-permission"})
"""Why no file can be created although one that is there may take other bytes."""
_ROOM_BYTES = 1024
"""What is replaced again and again is filled up with spaces to a multiple of it."""
_LAST = 9_999_999_999
"""The highest number that fits into a name."""
_LEADS_NOWHERE = "no history leads to its number, which is far beyond the others"


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a stream.

    Attributes:
        number: Its place, from 1.
        where: Its address, as messages name it.
    """

    number: int
    data: JsonDict
    where: str

    def decode(
        self,
        kind: type[T],
        *,
        at: str = "",
        lacking: Mapping[str, Any] | None = None,
        known: Mapping[str, Any] | None = None,
        hint: str = HINT,
    ) -> T:
        """What it says, as a dataclass or another type that `core.shape` reads.

        Args:
            at: The field that says it; all of the record when left out.
            lacking: What counts for fields that it may lack.
            known: What counts whatever it says.
            hint: What to do where it cannot be read.

        Raises:
            FormatError: A field is missing or of another kind, or it says that it is another record (code
                `damaged-record`).
        """
        data = {**(lacking or {}), **self.data, **(known or {})}
        found = decode(kind, data.get(at) if at else data, f"record {self.where}", at=at, hint=hint)
        number = getattr(found, "number", self.number)
        if number != self.number:
            raise FormatError(
                f"The record {self.where} says that it is number {number}.",
                code="damaged-record",
                hint="It was copied or edited. Once you know which record counts, move it away.",
            )
        return found


@dataclass(frozen=True, slots=True)
class Unproven:
    """A record that is to be signed.

    Attributes:
        signed: Whether the first key has signed it as it is.
    """

    record: Record
    key: str
    raw: bytes
    signed: bool

    @property
    def digest(self) -> str:
        """That of its bytes."""
        return hashlib.sha256(self.raw).hexdigest()


@contextmanager
def leaving_word(done: str, hint: str) -> Iterator[None]:
    """Record in the block what is done by now: an error of it says that only the record is missing.

    Args:
        done: What is done and what is not, as the first half of a sentence.

    Raises:
        StorageError: It could not be recorded (code `report-not-written`).
    """
    try:
        yield
    except StreambankError as error:
        raise StorageError(f"{done}: {error.message}", code="report-not-written", hint=hint) from error


def encode_json(data: Mapping[str, Any]) -> bytes:
    """The bytes of one JSON object, ended by a newline."""
    return (json.dumps(data, ensure_ascii=False, sort_keys=False) + "\n").encode()


def decode_json(data: bytes, what: str) -> JsonDict:
    """The JSON object in `data`.

    Raises:
        FormatError: They are not one whole JSON object (code `damaged-record`), such as after a power cut.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise _damaged(what, f"it has more than {MAX_RECORD_BYTES} bytes, which no record has")
    try:
        value = loads(data)
    except ValueError as error:
        raise _damaged(what, f"{error}") from error
    if not isinstance(value, dict):
        raise _damaged(what, "it is not a JSON object")
    return value


def read_or_empty(store: Store, key: str) -> JsonDict:
    """The JSON object of a file; empty where it is gone or cannot be read, for what decides nothing."""
    try:
        return decode_json(read_record(store, key), key)
    except (FormatError, NotFoundError):
        return {}


def _damaged(what: str, cause: str) -> FormatError:
    return FormatError(
        f"The record {what} cannot be read: {cause}.",
        code="damaged-record",
        hint="Look at it. Once you know what it should say, move it away: the record before it is used then.",
    )


class RecordStream:
    """The records `<prefix>/<10 digits>.json` of a store. Other names are left alone.

    Args:
        signer: Signs each record, and verifies each that is read; None for a stream that is not signed.
        anywhere: See `Signer.check`.
    """

    def __init__(
        self, store: Store, prefix: str, *, signer: Signer | None = None, anywhere: bool = False
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.signer = signer
        self.anywhere = anywhere

    def key(self, number: int, suffix: str = "") -> str:
        """The key of a record, or of a file that accompanies it (`suffix` such as `.beat`)."""
        return f"{self.prefix}/{number:010d}{suffix}.json"

    def describe(self, number: int, suffix: str = "") -> str:
        """The record's address as messages name it."""
        return f"{self.store.uri}/{self.key(number, suffix)}"

    def numbers(self) -> list[int]:
        """The numbers that are there, ascending; none that no history leads to (`near`)."""
        return _near(_NAME, self.store.names(self.prefix))

    def pruned_up_to(self) -> int:
        """The highest number that may have been deleted; 0 where none was."""
        return max(_near(_MARK, self.store.names(self.prefix)), default=0)

    def check_near(self, number: int) -> None:
        """Make sure that a record may get a number that does not come from this stream.

        Raises:
            FormatError: No history leads to it (code `damaged-record`): there would be no way on from it.
        """
        names = self.store.names(self.prefix)
        if number not in near({*_matching(_NAME, names), *_matching(_MARK, names), number}):
            raise _damaged(self.describe(number), _LEADS_NOWHERE)

    def record(self, number: int, data: JsonDict) -> Record:
        """What a record says, with its number and its address."""
        return Record(number, data, self.describe(number))

    def read(self, number: int) -> JsonDict:
        """One record.

        Raises:
            NotFoundError: There is no such number.
            FormatError: It is damaged (code `damaged-record`).
            IntegrityError: It is not signed, and has to be (codes `not-signed`, `bad-signature`).
        """
        return self._read(number, ())

    def _read(self, number: int, names: Iterable[str]) -> JsonDict:
        data = read_record(self.store, self.key(number))
        if self.signer is not None:
            self.signer.check(self.key(number), data, names, anywhere=self.anywhere)
        return decode_json(data, self.describe(number))

    def latest(self) -> Record | None:
        """The newest record, or None while there is none.

        Raises:
            FormatError: The newest record is damaged: older ones must not silently stand in for it.
            IntegrityError: It is not signed, and has to be; so for `all` and `newest_first`.
        """
        return next(self.newest_first(), None)

    def all(self, *, after: int = 0) -> Iterator[Record]:
        """The records with a number above `after`, ascending.

        Raises:
            FormatError: A record is damaged.
        """
        names = self.store.names(self.prefix)
        yield from self._read_those((number for number in self._all_near(names) if number > after), names)

    def newest_first(self, *, vouched: bool = False) -> Iterator[Record]:
        """The records, descending; each is read when it is asked for.

        Args:
            vouched: Without older ones that are not signed, and have to be: of a stream whose newest record
                alone counts, nothing else is vouched for (`sign`).

        Raises:
            FormatError: A record is damaged.
        """
        names = self.store.names(self.prefix)
        numbers = self._all_near(names)
        for number in reversed(numbers):
            try:
                yield from self._read_those((number,), names)
            except IntegrityError:
                if not vouched or number == numbers[-1]:
                    raise

    def _all_near(self, names: Collection[str]) -> list[int]:
        """The numbers in a listing, ascending, where a history leads to each.

        Raises:
            FormatError: Else (code `damaged-record`): which record is the newest is then not known.
        """
        numbers = _near(_NAME, names)
        far = set(_matching(_NAME, names)).difference(numbers)
        if far:
            raise _damaged(self.describe(max(far)), _LEADS_NOWHERE)
        return numbers

    def _read_those(self, numbers: Iterable[int], names: Iterable[str]) -> Iterator[Record]:
        for number in numbers:
            try:
                yield self.record(number, self._read(number, names))
            except NotFoundError:
                continue  # it was pruned since it was listed

    def history(self, *, newest: int | None = None) -> Iterator[Record]:
        """Every record (or only the newest ones), for people to read, oldest first.

        One that is damaged, or not signed, shows as `{"error": ..., "message": ...}`.
        """
        names = self.store.names(self.prefix)
        numbers, there = sorted(_matching(_NAME, names)), {*_near(_NAME, names)}
        for number in numbers if newest is None else numbers[-newest:]:
            try:
                if number not in there:
                    raise _damaged(self.describe(number), _LEADS_NOWHERE)
                yield self.record(number, self._read(number, names))
            except (FormatError, IntegrityError) as error:
                yield self.record(number, {"error": error.code, "message": error.message})
            except NotFoundError:
                continue

    def create(self, number: int, data: Mapping[str, Any], *, suffix: str = "") -> bool:
        """Create exactly this number; False where somebody has it already, or had it before it was pruned.

        Raises:
            FormatError: The record before has the last number that there can be, or a mark of what was
                pruned is false (code `damaged-record`).
            RefusedError: The stream is signed, and there is no key (code `signing-key-missing`).
        """
        if number > _LAST:
            self.refuse_false_mark()
            raise _damaged(self.describe(_LAST), "no record can come after that number")
        from streambank.storage.local.reserve import with_room  # a DAG parse writes no record

        encoded = encode_json(data)
        signer = None if suffix else self.signer
        if signer is not None:
            self.require_key()
        try:
            if signer is not None:
                with_room(self.store, lambda: signer.sign(self.key(number), encoded, anywhere=self.anywhere))
            with_room(self.store, lambda: self.store.write(self.key(number, suffix), encoded, exclusive=True))
        except ConflictError as error:
            if error.code != "exists":
                raise
            return False
        if not suffix and number <= self.pruned_up_to():
            self.store.delete(self.key(number))
            self.refuse_false_mark()
            return False
        return True

    def refuse_false_mark(self) -> None:
        """Make sure that the mark up to which records were pruned can be true: it leaves the newest record.

        Raises:
            FormatError: It is not (code `damaged-record`).
        """
        mark = self.pruned_up_to()
        if mark and mark >= max(self.numbers(), default=0):  # listed after the mark: no late record is missed
            raise _damaged(self.describe(mark, _PRUNED), "it says that the newest record was deleted, too")

    def replace(
        self, number: int, data: Mapping[str, Any], *, suffix: str, shorter: Mapping[str, Any]
    ) -> str | None:
        """Replace what accompanies a record, a heartbeat or a sign, on a disk without room, too.

        There no file can be created, but what a file says can be replaced where it lies. A reader may then
        see parts of both.

        Args:
            shorter: What it says where `data` has no room in the place of what was there.

        Returns:
            Why it had to be replaced where it lies; None where it had not.
        """
        key, encoded = self.key(number, suffix), encode_json(data)
        try:
            # With some spaces more than it needs, for one in its place that says more.
            self.store.write(key, encoded[:-1] + b" " * (-len(encoded) % _ROOM_BYTES) + encoded[-1:])
            return None
        except StorageError as error:
            if error.code not in _NO_ROOM or not isinstance(self.store, Overwriting):
                raise
            try:
                try:
                    self.store.overwrite(key, encoded)
                except StorageError:
                    self.store.overwrite(key, encode_json(shorter))
            except (NotFoundError, StorageError):
                raise error from None
            return error.message

    def require_key(self) -> None:
        """Make sure that what this stream says can be verified here, where it is signed.

        Raises:
            RefusedError: There is no key (code `signing-key-missing`).
        """
        if self.signer is not None and not self.signer.keys:
            self.signer.refuse_without_key(self.store.names(self.prefix))

    def unproven(self, identity: Identity, *, newest: bool = False) -> Iterator[Unproven]:
        """Each record as it is, signed or not, oldest first; none of a stream that is not signed.

        Args:
            identity: Whose records they are (`Signer.to_vouch`).
            newest: Without older ones that no key has signed: they count for nothing until somebody deletes
                what came after them.

        Raises:
            FormatError: A record is damaged (code `damaged-record`).
        """
        if self.signer is None:
            return
        names = self.store.names(self.prefix)
        numbers = self._all_near(names)
        for number in numbers:
            key, data = self.key(number), read_record(self.store, self.key(number))
            signed = self.signer.has_signed(key, data, names, identity)
            if newest and not signed and number != numbers[-1]:
                try:
                    self.signer.check(key, data, names, anywhere=True)
                except IntegrityError:
                    continue
            said = decode_json(data, self.describe(number))
            yield Unproven(self.record(number, said), key, data, signed)

    def sign(
        self, identity: Identity, seen: Mapping[str, str], *, unsigned: bool = False, newest: bool = False
    ) -> None:
        """Sign each record that the first key has not signed as it is.

        Args:
            identity: Whose records they are from now on (`Signer.to_vouch`).
            seen: The digest of each record that is vouched for, by its key.
            unsigned: Also what no key has signed although there are several, so that there were signatures
                before; and what was changed since it was signed.
            newest: See `unproven`.

        Raises:
            FormatError: A record is damaged (code `damaged-record`).
            ConflictError: One is not as it was seen (`records-changed`).
            IntegrityError: A record would be vouched for that no key has signed (`not-signed`,
                `bad-signature`).
        """
        names = self.store.names(self.prefix)
        for record in self.unproven(identity, newest=newest):
            if seen.get(record.key) != record.digest:
                raise ConflictError(
                    f"The record {self.store.uri}/{record.key} has come or was changed since it was looked "
                    "at.",
                    code="records-changed",
                    hint="Look again, and ask again.",
                )
            if self.signer is not None and not record.signed:
                if not unsigned:
                    self.signer.check_replaced(record.key, record.raw, names)
                self.signer.sign(record.key, record.raw, identity)

    def append(self, data: Mapping[str, Any]) -> int:
        """Create the next free number and give it back.

        Raises:
            ConflictError: Others were faster a thousand times in a row (code `record-contention`).
        """
        number = 0
        for _ in range(_TRIES):
            names = self.store.names(self.prefix)
            used = max(near({*_matching(_NAME, names), *_matching(_MARK, names)}), default=0)
            number = max(used, number) + 1
            if self.create(number, data):
                return number
        raise ConflictError(
            f"No free number was found for a record under {self.store.uri}/{self.prefix}.",
            code="record-contention",
            hint="There were too many writers at once. Try again.",
        )

    def drop(self, numbers: Collection[int]) -> None:
        """Delete records, with what accompanies them; their numbers stay used up.

        A crash in the middle leaves some of them, or files that accompanied one: the next call with higher
        numbers takes those along.

        Args:
            numbers: Which; the newest record is never one of them.
        """
        if not numbers:
            return
        mark = max(numbers)
        if mark > self.pruned_up_to():
            self.create(mark, {"pruned_up_to": mark}, suffix=_PRUNED)
        names = self.store.names(self.prefix)
        there = set(_matching(_NAME, names)) - set(numbers)
        # The mark before stays as well: who lists a folder while one comes and another goes may see neither.
        marks = {self.key(number, _PRUNED) for number in sorted(_matching(_MARK, names))[-2:]}
        # Ascending, so that whoever holds a claim finds its own record gone before the next one is.
        for name in sorted(names):
            found, key = _ANY.fullmatch(name) or SIGNATURE.fullmatch(name), f"{self.prefix}/{name}"
            if found is None or int(found[1]) > mark or int(found[1]) in there or key in marks:
                continue
            self.store.delete(key)


def _matching(pattern: re.Pattern[str], names: Iterable[str]) -> Iterator[int]:
    return (int(match[1]) for name in names if (match := pattern.fullmatch(name)) is not None)


def _near(pattern: re.Pattern[str], names: Collection[str]) -> list[int]:
    """The numbers in names of a kind, ascending, to which records and marks lead."""
    leading = {*near({*_matching(_NAME, names), *_matching(_MARK, names)})}
    return sorted(leading.intersection(_matching(pattern, names)))
