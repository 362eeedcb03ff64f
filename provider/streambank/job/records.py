"""Streams of numbered, create-only JSON records: how a job remembers, on any store.

A conditional create is the one primitive that every storage has, so nothing here is ever updated: a change is
the next number, and of two writers that want the same number exactly one gets it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streambank.errors import ConflictError, FormatError, NotFoundError
from streambank.storage.base import Store

JsonDict = dict[str, Any]

_NAME = re.compile(r"(\d{10})\.json")
_TRIES = 1000


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a stream.

    Attributes:
        number: Its place, from 1.
        data: What was recorded.
    """

    number: int
    data: JsonDict


def encode_json(data: Mapping[str, Any]) -> bytes:
    """The bytes of one JSON object, ended by a newline."""
    return (json.dumps(data, ensure_ascii=False, sort_keys=False) + "\n").encode()


def decode_json(data: bytes, what: str) -> JsonDict:
    """The JSON object in `data`.

    Raises:
        FormatError: They are not one whole JSON object (code `damaged-record`), such as after a power cut.
    """
    try:
        value = json.loads(data)
    except ValueError as error:
        raise _damaged(what, f"{error}") from error
    if not isinstance(value, dict):
        raise _damaged(what, "it holds no JSON object")
    return value


def _damaged(what: str, cause: str) -> FormatError:
    return FormatError(
        f"The record {what} cannot be read: {cause}.",
        code="damaged-record",
        hint="Look at it; once you know what it should have said, move it away: the one before then counts.",
    )


class RecordStream:
    """The records `<prefix>/<10 digits>.json` of a store. Other names are left alone."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.store = store
        self.prefix = prefix

    def key(self, number: int, suffix: str = "") -> str:
        """The key of a record, or of a file that accompanies it (`suffix` such as `.beat`)."""
        return f"{self.prefix}/{number:010d}{suffix}.json"

    def describe(self, number: int, suffix: str = "") -> str:
        """The record's address as messages name it."""
        return f"{self.store.uri}/{self.key(number, suffix)}"

    def numbers(self) -> list[int]:
        """The numbers that are there, ascending."""
        return sorted(
            int(match[1])
            for name in self.store.names(self.prefix)
            if (match := _NAME.fullmatch(name)) is not None
        )

    def read(self, number: int) -> JsonDict:
        """One record.

        Raises:
            NotFoundError: There is no such number.
            FormatError: It is damaged (code `damaged-record`).
        """
        return decode_json(self.store.read(self.key(number)), self.describe(number))

    def latest(self) -> Record | None:
        """The newest record, or None while there is none.

        Raises:
            FormatError: The newest record is damaged: older ones must not silently stand in for it.
        """
        numbers = self.numbers()
        return Record(numbers[-1], self.read(numbers[-1])) if numbers else None

    def all(self, *, after: int = 0) -> Iterator[Record]:
        """The records with a number above `after`, ascending.

        Raises:
            FormatError: A record is damaged.
        """
        for number in self.numbers():
            if number > after:
                yield Record(number, self.read(number))

    def history(self, *, newest: int | None = None) -> Iterator[Record]:
        """Every record (or only the newest ones), for people to read, oldest first.

        A damaged one shows as `{"error": ..., "message": ...}`.
        """
        numbers = self.numbers()
        for number in numbers if newest is None else numbers[-newest:]:
            try:
                yield Record(number, self.read(number))
            except FormatError as error:
                yield Record(number, {"error": error.code, "message": error.message})
            except NotFoundError:
                continue

    def create(self, number: int, data: Mapping[str, Any], *, suffix: str = "") -> bool:
        """Create exactly this number; False where somebody else has it already."""
        try:
            self.store.write(self.key(number, suffix), encode_json(data), exclusive=True)
        except ConflictError as error:
            if error.code != "exists":
                raise
            return False
        return True

    def append(self, data: Mapping[str, Any]) -> int:
        """Create the next free number and give it back.

        Raises:
            ConflictError: Others were faster a thousand times in a row (code `record-contention`).
        """
        numbers = self.numbers()
        number = numbers[-1] + 1 if numbers else 1
        for _ in range(_TRIES):
            if self.create(number, data):
                return number
            number += 1
        raise ConflictError(
            f"No free number was found for a record under {self.store.uri}/{self.prefix}.",
            code="record-contention",
            hint="Too many writers at once; try again.",
        )
