"""The objects of a repository: where each lies, reading them checked, and adding new ones."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import BinaryIO, cast

from streambank.errors import FormatError, IntegrityError, NotFoundError
from streambank.savepoint.condemned import Condemned
from streambank.savepoint.digest import digest_of, split_digest
from streambank.savepoint.index import REINDEX_HINT, IndexedObject
from streambank.savepoint.index_files import Damage, IndexFiles, RebuildReport
from streambank.savepoint.packs import ENCODING_NONE, SMALL_BYTES, Pack, pack_key, read_pack
from streambank.savepoint.reading import (
    READ_BYTES,
    CheckedReader,
    ObjectLocation,
    PartReader,
    damaged_object,
    groups,
    missing_pack,
)
from streambank.savepoint.writer import ObjectWriter, object_key
from streambank.storage.base import Store

_BUFFER_BYTES = 256 << 10  # as much as stays in a processor's cache while it is hashed


class Objects:
    """The objects under one repository's root. Safe to use from several threads.

    Args:
        store: The repository's root.
        digest_name: Its digest algorithm.
    """

    def __init__(self, store: Store, digest_name: str) -> None:
        self._store = store
        self._digest_name = digest_name
        self._index = IndexFiles(store, digest_name)
        self._thread = threading.local()
        self._whole_packs: set[str] = set()  # adding to and asking a set is atomic
        self._condemned = Condemned(store)

    # Finding

    def has(self, digest: str, size_bytes: int | None = None) -> bool:
        """See `Repository.has`."""
        split_digest(digest)
        for place in self._lasting(digest):
            if size_bytes in (None, place.length) and self._is_whole(place):
                return True
        key = object_key(digest)
        if key in self._condemned:
            return False
        try:
            info = self._store.stat(key)
        except NotFoundError:
            return False
        return size_bytes in (None, info.size_bytes)

    def missing(self, digests: Iterable[str] | Mapping[str, int]) -> set[str]:
        """See `Repository.missing`."""
        if isinstance(digests, Mapping):
            return {digest for digest, size_bytes in digests.items() if not self.has(digest, size_bytes)}
        return {digest for digest in digests if not self.has(digest)}

    def look_again(self) -> None:
        """Take in what others wrote, condemned and deleted since the last look."""
        self._index.load(refresh=True)
        self._whole_packs.clear()
        self._condemned.refresh()

    def condemned(self, digests: Iterable[str], *, refresh: bool = False) -> set[str]:
        """See `Repository.condemned`."""
        if refresh:
            self._condemned.refresh()
        return {digest for digest in digests if self._is_condemned(digest)} if self._condemned else set()

    def lasting_places(self, digest: str) -> list[ObjectLocation]:
        """Every place where an object lies whole, as far as sizes tell, and that no sweep has condemned."""
        places = [_packed_location(digest, place) for place in self._lasting(digest) if self._is_whole(place)]
        key = object_key(digest)
        if key not in self._condemned:
            with suppress(NotFoundError):
                size_bytes = self._store.stat(key).size_bytes
                places.append(ObjectLocation("object", key, 0, size_bytes, size_bytes))
        return places

    def locate(self, digest: str) -> ObjectLocation:
        """See `Repository.object_location`; index files that others wrote meanwhile are taken in."""
        place = self._find(digest)
        key = object_key(digest)
        if place is not None and self._lasts_as_file_only(place, key):
            place = None
        # An index that was written beside a sweep may name a pack of a large object that is gone since.
        if place is not None and (
            place.length <= SMALL_BYTES or self._is_whole(place) or not self._store.exists(key)
        ):
            return _packed_location(digest, place)
        try:
            info = self._store.stat(key)
        except NotFoundError as error:
            self._index.load(refresh=True)
            place = self._find(digest)
            if place is None:
                raise self._missing(digest) from error
            return _packed_location(digest, place)
        return ObjectLocation("object", key, 0, info.size_bytes, info.size_bytes, info.names)

    def check(self, digest: str, size_bytes: int) -> None:
        """See `Repository.check_object`."""
        location = self.locate(digest)
        if location.length != size_bytes:
            raise damaged_object(digest, location, f"it has {location.length} bytes instead of {size_bytes}")
        place = self._find(digest)
        if location.kind == "pack" and place is not None and not self._is_whole(place):
            self.check_pack(place.pack_id)
            raise damaged_object(digest, location, "the pack is not as long as the index says")

    def check_pack(self, pack_id: str) -> None:
        """See `Repository.check_pack`."""
        try:
            read_pack(self._store, pack_id)
        except NotFoundError as error:
            raise missing_pack(pack_id) from error

    def repair_pack(self, pack_id: str) -> bool:
        """See `IndexFiles.repair`."""
        return self._index.repair(pack_id)

    # Reading

    def open(self, digest: str) -> AbstractContextManager[BinaryIO]:
        """See `Repository.open_object`."""
        location = self.locate(digest)
        if location.kind == "object":
            return self._open_file(digest, location)
        if location.length > READ_BYTES:
            part = io.BufferedReader(PartReader(self._store, location), READ_BYTES)
            return cast("AbstractContextManager[BinaryIO]", CheckedReader(part, digest, location))
        data = self._read(location.key, location.offset, location.length)
        return nullcontext(io.BytesIO(_checked(digest, location, data)))

    def hash(self, digest: str, passing: Callable[[int], None]) -> None:
        """See `Repository.hash_object`."""
        with self.open(digest) as reader:
            buffer = self._buffer()
            while count := reader.readinto(buffer):  # type: ignore[attr-defined]  # every raw reader has it
                passing(count)

    def _buffer(self) -> memoryview:
        """Where this thread reads to, again and again: new memory would cost as much as the reading."""
        buffer: memoryview | None = getattr(self._thread, "buffer", None)
        if buffer is None:
            buffer = self._thread.buffer = memoryview(bytearray(_BUFFER_BYTES))
        return buffer

    def read_many(self, digests: Iterable[str]) -> Iterator[tuple[str, bytes | IntegrityError]]:
        """See `Repository.read_objects`."""
        packs: dict[str, list[tuple[str, ObjectLocation]]] = {}
        for digest in dict.fromkeys(digests):
            try:
                location = self.locate(digest)
                if location.kind == "pack":
                    packs.setdefault(location.key, []).append((digest, location))
                    continue
                with self._open_file(digest, location) as reader:
                    data = reader.read()
            except IntegrityError as error:
                yield digest, error
            else:
                yield digest, data
        for wanted in packs.values():
            for group in groups(wanted):
                yield from self._read_group(group)

    # Writing

    def writer(self) -> ObjectWriter:
        """See `Repository.writer`."""
        self.look_again()
        return ObjectWriter(
            self._store, self._digest_name, self._has_whole, self._publish, condemned=self._condemned
        )

    # The index

    def check_index(self) -> list[Damage]:
        """See `Repository.check_index`."""
        self._index.load(refresh=True)
        return self._index.damaged()

    def unindexed_packs(self) -> set[str]:
        """See `IndexFiles.unindexed_packs`."""
        return self._index.unindexed_packs()

    def known_packs(self) -> dict[str, Pack]:
        """See `IndexFiles.known_packs`."""
        return self._index.known_packs()

    def rebuild_index(self) -> RebuildReport:
        """See `Repository.rebuild_index`."""
        return self._index.rebuild()

    def drop_from_index(self, pack_ids: Set[str]) -> bool:
        """See `IndexFiles.drop`."""
        return self._index.drop(pack_ids)

    def _publish(self, packs: list[Pack]) -> None:
        self._index.publish(packs)
        self._whole_packs.update(pack.id for pack in packs)

    def _find(self, digest: str) -> IndexedObject | None:
        """Where a packed object lies; of several places one whose pack is whole, one that lasts first."""
        split_digest(digest)
        return self._place(digest)

    def _lasting(self, digest: str) -> Sequence[IndexedObject]:
        """Where a packed object lies, without packs that a sweep is going to delete."""
        places = self._index.find(digest)
        if not self._condemned:
            return places
        return [place for place in places if pack_key(place.pack_id) not in self._condemned]

    def _is_condemned(self, digest: str) -> bool:
        """Whether all that the repository has of an object is going to be deleted."""
        key = object_key(digest)
        if any(self._is_whole(place) for place in self._lasting(digest)):
            return False
        if key in self._condemned:
            return True
        return bool(self._index.find(digest)) and not self._store.exists(key)

    def _place(self, digest: str) -> IndexedObject | None:
        places = self._index.find(digest)
        if len(places) > 1:  # a sweep may have stored it again, and be about to delete the first one
            self._condemned.look_once()
            places = [*self._lasting(digest), *places]
            return next((place for place in places if self._is_whole(place)), places[0])
        return places[0] if places else None

    def _lasts_as_file_only(self, place: IndexedObject, key: str) -> bool:
        """Whether the pack that holds a large object is going to be deleted, and a file of its own is not."""
        if place.length <= SMALL_BYTES or pack_key(place.pack_id) not in self._condemned:
            return False
        return key not in self._condemned and self._store.exists(key)

    def _has_whole(self, digest: str, size_bytes: int) -> bool:
        """What a writer asks: small objects live in packs and large ones in files, so one look is enough."""
        if size_bytes > SMALL_BYTES:
            return self.has(digest, size_bytes)
        return any(place.length == size_bytes and self._is_whole(place) for place in self._lasting(digest))

    def _is_whole(self, place: IndexedObject) -> bool:
        """Whether a pack is there with the size it was written with; asked once a pack."""
        if place.pack_id in self._whole_packs:
            return True
        try:
            whole = self._store.stat(pack_key(place.pack_id)).size_bytes == place.pack_bytes
        except NotFoundError:
            return False
        if whole:
            self._whole_packs.add(place.pack_id)
        return whole

    def _read(self, key: str, offset: int, length: int) -> bytes:
        try:
            return self._store.read(key, offset, length)
        except NotFoundError as error:
            raise missing_pack(key.rpartition("/")[2]) from error

    def _read_group(
        self, group: list[tuple[str, ObjectLocation]]
    ) -> Iterator[tuple[str, bytes | IntegrityError]]:
        first, last = group[0][1], group[-1][1]
        try:
            data = self._read(first.key, first.offset, last.offset + last.length - first.offset)
        except IntegrityError as error:
            yield from ((digest, error) for digest, _ in group)
            return
        for digest, location in group:
            start = location.offset - first.offset
            try:
                yield digest, _checked(digest, location, data[start : start + location.length])
            except IntegrityError as error:
                yield digest, error

    @contextmanager
    def _open_file(self, digest: str, location: ObjectLocation) -> Iterator[BinaryIO]:
        try:
            opened = self._store.open(location.key)
            with opened as reader, CheckedReader(reader, digest, location) as checked:
                yield cast("BinaryIO", checked)
        except NotFoundError as error:
            raise self._missing(digest) from error

    def _missing(self, digest: str) -> IntegrityError:
        damaged = sorted(damage.key for damage in self._index.damaged())
        if damaged:
            return IntegrityError(
                f"The object {digest} cannot be found, and {damaged[0]} is damaged.",
                code="index-damaged",
                hint=REINDEX_HINT,
            )
        if unindexed := self._index.count_unindexed():
            return IntegrityError(
                f"The object {digest} cannot be found; it may be in one of {unindexed} packs that no index "
                "file names.",
                code="index-incomplete",
                hint="`streambank reindex` makes the index again from the packs: do that, and look again.",
            )
        return IntegrityError(
            f"The repository does not hold the object {digest} any more.",
            code="object-missing",
            hint="Savepoints that need it cannot be restored from here: use another one, or a replica.",
        )


def _packed_location(digest: str, place: IndexedObject) -> ObjectLocation:
    if place.encoding != ENCODING_NONE:
        raise FormatError(
            f"The object {digest} is stored with the encoding {place.encoding!r}, which is not known.",
            code="unknown-format",
            hint="A newer Streambank wrote it: upgrade this one.",
        )
    return ObjectLocation("pack", pack_key(place.pack_id), place.offset, place.length, place.pack_bytes)


def _checked(digest: str, location: ObjectLocation, data: bytes) -> bytes:
    if digest_of(split_digest(digest)[0], data) != digest:
        raise damaged_object(digest, location, "its bytes are not those that were stored")
    return data
