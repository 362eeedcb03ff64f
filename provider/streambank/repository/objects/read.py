"""Reading objects: where one lies, readers that compare digests, which parts of a pack to read at once."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.repository.digest import digest_of, new_hasher, split_digest
from streambank.repository.objects.index import IndexedObject
from streambank.repository.objects.packs import ENCODING_NONE, pack_key
from streambank.storage.store import FileInfo, Store

READ_BYTES = 8 << 20
"""How much of a pack is read at once."""
GAP_BYTES = 64 << 10
"""Unwanted bytes between two wanted objects that are read along rather than skipped."""
_USE_ANOTHER = "Savepoints that need it cannot be restored from here: use another one, or a replica."


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """Where an object lies.

    Attributes:
        kind: `object` for its own file, `pack` for a part of a pack.
        key: That file in the repository's store.
        file_bytes: How long that whole file should be: a pack as the index says, an object's as it is.
        names: How many names share an object's file; more than one where a restore has linked it.
    """

    kind: Literal["object", "pack"]
    key: str
    offset: int
    length: int
    file_bytes: int
    names: int = 1


class CheckedReader(io.RawIOBase):
    """Reads a file through, and compares its digest where it ends."""

    def __init__(self, reader: BinaryIO, digest: str, location: ObjectLocation) -> None:
        self._reader = reader
        self._digest = digest
        self._location = location
        self._algorithm = split_digest(digest)[0]
        self._hasher = new_hasher(self._algorithm)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, all for -1.

        Raises:
            IntegrityError: The end is reached, and the digest is another one (code `object-damaged`).
        """
        data = self._reader.read(size)
        self._hasher.update(data)
        if size < 0 or (not data and size):
            self._compare()
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # not every Buffer
        """See `read`; where the file can, the bytes come here without one more copy."""
        into: Callable[[memoryview], int | None] | None = getattr(self._reader, "readinto", None)
        if into is None:
            data = self.read(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        count = into(buffer) or 0
        if count:
            self._hasher.update(buffer[:count])
        elif len(buffer):
            self._compare()
        return count

    def _compare(self) -> None:
        if f"{self._algorithm}:{self._hasher.hexdigest()}" != self._digest:
            raise damaged_object(self._digest, self._location, "its bytes are not those that were stored")


def part_chunks(store: Store, location: ObjectLocation) -> Iterator[bytes]:
    """The bytes of an object that lies in a pack, in steps of `READ_BYTES`; their digest is not compared.

    Raises:
        NotFoundError: The file is gone.
    """
    for done in range(0, location.length, READ_BYTES):
        yield store.read(location.key, location.offset + done, min(READ_BYTES, location.length - done))


class PartReader(io.RawIOBase):
    """Reads an object that lies in a pack, step by step; wrap it in a buffer of `READ_BYTES`."""

    def __init__(self, store: Store, location: ObjectLocation) -> None:
        self._store = store
        self._location = location
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # not every Buffer
        """The next bytes.

        Raises:
            IntegrityError: The pack is gone (code `pack-missing`).
        """
        wanted = min(len(buffer), self._location.length - self._done)
        try:
            data = self._store.read(self._location.key, self._location.offset + self._done, wanted)
        except NotFoundError as error:
            raise missing_pack(self._location.key.rpartition("/")[2]) from error
        self._done += len(data)
        buffer[: len(data)] = data
        return len(data)


def groups(wanted: list[tuple[str, ObjectLocation]]) -> Iterator[list[tuple[str, ObjectLocation]]]:
    """Objects of one pack that are read in one step each, in order of their offsets."""
    wanted.sort(key=lambda item: (item[1].offset, item[1].length))  # an empty one before its neighbour
    group: list[tuple[str, ObjectLocation]] = []
    for item in wanted:
        if group:
            start, end = group[0][1].offset, group[-1][1].offset + group[-1][1].length
            far = item[1].offset - end > GAP_BYTES
            if far or item[1].offset + item[1].length - start > READ_BYTES:
                yield group
                group = []
        group.append(item)
    if group:
        yield group


def damaged_object(digest: str, location: ObjectLocation, why: str) -> IntegrityError:
    """The error of an object that is not what was stored."""
    where = location.key if location.kind == "object" else f"{location.key} at {location.offset}"
    return IntegrityError(
        f"The object {digest} in {where} is damaged: {why}.",
        code="object-damaged",
        hint=_USE_ANOTHER,
    )


def missing_pack(pack_id: str) -> IntegrityError:
    """The error of a pack that the index names and that is not there."""
    return IntegrityError(
        f"The pack {pack_key(pack_id)} is gone.",
        code="pack-missing",
        hint=_USE_ANOTHER,
    )


def file_location(info: FileInfo) -> ObjectLocation:
    """Where an object with a file of its own lies."""
    return ObjectLocation("object", info.path, 0, info.size_bytes, info.size_bytes, info.names)


def packed_location(digest: str, place: IndexedObject) -> ObjectLocation:
    """Where an object of a pack lies.

    Raises:
        FormatError: It is stored in a way that is not known (code `unknown-format`).
    """
    if place.encoding != ENCODING_NONE:
        raise FormatError(
            f"The object {digest} is stored with the encoding {place.encoding!r}, which is not known.",
            code="unknown-format",
            hint="A newer Streambank wrote it: upgrade this one.",
        )
    return ObjectLocation("pack", pack_key(place.pack_id), place.offset, place.length, place.pack_bytes)


def checked(digest: str, location: ObjectLocation, data: bytes) -> bytes:
    """The same bytes, once their digest is compared.

    Raises:
        IntegrityError: It is another one.
    """
    if digest_of(split_digest(digest)[0], data) != digest:
        raise damaged_object(digest, location, "its bytes are not those that were stored")
    return data
