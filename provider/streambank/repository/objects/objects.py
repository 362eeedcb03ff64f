"""The objects of a repository: where each lies, reading them checked, and adding new ones."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import BinaryIO, cast

from streambank.core.errors import IntegrityError, NotFoundError
from streambank.repository.digest import split_digest
from streambank.repository.objects.index import IndexedObject
from streambank.repository.objects.index_files import IndexFiles
from streambank.repository.objects.large import Absent, look_up, object_key
from streambank.repository.objects.packs import SMALL_BYTES, Pack, pack_key, read_pack
from streambank.repository.objects.read import (
    READ_BYTES,
    CheckedReader,
    ObjectLocation,
    PartReader,
    checked,
    file_location,
    groups,
    missing_pack,
    packed_location,
)
from streambank.repository.objects.write import ObjectWriter
from streambank.repository.trash import PendingDeletes
from streambank.storage.store import CHUNK_BYTES, FileInfo, HeldFile, Store, chunks


class Objects:
    """The objects under one repository's root. Safe to use from several threads."""

    def __init__(self, store: Store, digest_name: str) -> None:
        self._store = store
        self._digest_name = digest_name
        self.index = IndexFiles(store, digest_name)
        self._thread = threading.local()
        self._whole_packs: set[str] = set()  # adding to and asking a set is atomic
        self._gone: set[str] = set()  # files that were looked for in vain, and the index was read again
        self._condemned = PendingDeletes(store)
        self._holds = store.features.holds

    # Finding

    def has(
        self,
        digest: str,
        size_bytes: int | None = None,
        *,
        file: FileInfo | None = None,
        absent: Container[str] = frozenset(),
    ) -> bool:
        """Whether an object is there to stay, of this size where one is given. Its bytes are not read.

        What a sweep is going to delete is not: store it again, and it goes where it lasts.

        Args:
            file: Its own file, as it is now; looked for where it is not given.
            absent: Objects that are known to have no file of their own.
        """
        split_digest(digest)
        for place in self._lasting(digest):
            if size_bytes in (None, place.length) and self._is_whole(place):
                return True
        key = object_key(digest)
        if key in self._condemned or digest in absent:
            return False
        try:
            info = file or self._store.stat(key)
        except NotFoundError:
            return False
        return size_bytes in (None, info.size_bytes)

    def missing(self, digests: Iterable[str] | Mapping[str, int]) -> set[str]:
        """Those of some objects that are not there, or not of the size that a mapping gives."""
        wanted = digests if isinstance(digests, Mapping) else dict.fromkeys(digests)
        files = self.look_up(wanted)
        return {it for it, size_bytes in wanted.items() if not self.has(it, size_bytes, file=files.get(it))}

    def size(self, digest: str) -> int:
        """Size of an object in bytes.

        Raises:
            IntegrityError: It is not there (code `object-missing`).
        """
        return self.locate(digest).length

    def look_up(self, digests: Iterable[str]) -> Mapping[str, FileInfo]:
        """The files of those of some objects that have one, as far as a service tells of many at once.

        Nothing on a disk, or for few objects: `locate` each then.
        """
        if not self._store.features.remote:
            return {}
        return look_up(self._store, [digest for digest in digests if not self.index.find(digest)])

    def refresh(self) -> None:
        """Take in what others wrote, condemned and deleted since the last look."""
        self.index.load(refresh=True)
        self._whole_packs.clear()
        self._condemned.refresh()

    def condemned(self, digests: Iterable[str], *, refresh: bool = False) -> set[str]:
        """Those of some objects that a sweep is going to delete: there is no other copy of them here.

        Args:
            refresh: Look again what has been condemned since the repository was last looked at.
        """
        if refresh:
            self._condemned.refresh()
        return {digest for digest in digests if self._is_condemned(digest)} if self._condemned else set()

    def lasting_places(self, digest: str) -> list[ObjectLocation]:
        """Every place where an object lies whole, as far as sizes tell, and that no sweep has condemned."""
        places = [packed_location(digest, place) for place in self._lasting(digest) if self._is_whole(place)]
        key = object_key(digest)
        if key not in self._condemned:
            with suppress(NotFoundError):
                size_bytes = self._store.stat(key).size_bytes
                places.append(ObjectLocation("object", key, 0, size_bytes, size_bytes))
        return places

    def locate(self, digest: str, *, gone: str | None = None, file: FileInfo | None = None) -> ObjectLocation:
        """Where an object lies; index files that others wrote meanwhile are taken in.

        Args:
            gone: The pack where it was said to lie, and that is not there. A sweep has had what is needed of
                it stored elsewhere before it deleted it, so the index is read again.
            file: Its own file, as `look_up` has found it a moment ago.

        Raises:
            IntegrityError: It is not there (code `object-missing`).
        """
        if gone is not None and gone not in self._gone:
            self._gone.add(gone)
            self._whole_packs.discard(gone.rpartition("/")[2])
            self.index.load(refresh=True)
        place = self._find(digest)
        key = object_key(digest)
        if place is not None and (place.length <= SMALL_BYTES or not self._is_rather_a_file(key, place)):
            return packed_location(digest, place)
        try:
            info = file or self._store.stat(key)
        except NotFoundError as error:
            self.index.load(refresh=True)
            place = self._find(digest)
            if place is None:
                raise self.index.missing_error(digest) from error
            return packed_location(digest, place)
        return file_location(info)

    def check_pack(self, pack_id: str) -> None:
        """Compare a pack's length, trailer and table of contents with its id; its objects are not read.

        Raises:
            IntegrityError: One is not what it was (code `pack-damaged`), or it is gone (`pack-missing`).
        """
        try:
            read_pack(self._store, pack_id)
        except NotFoundError as error:
            raise missing_pack(pack_id) from error

    # Reading

    @contextmanager
    def open(self, digest: str) -> Iterator[BinaryIO]:
        """A reader of an object, which compares the digest when its end is reached.

        Raises:
            IntegrityError: It is not there (code `object-missing`), or, from `read`, not what it was (code
                `object-damaged`).
        """
        with self._open(digest) as (_, reader):
            yield reader

    def chunks(self, digest: str) -> Iterator[bytes]:
        """The bytes of an object, chunk by chunk; the last step compares the digest.

        Made for `Store.write`, which leaves nothing behind where this raises.

        Raises:
            IntegrityError: As `open`.
        """
        with self.open(digest) as reader:
            yield from chunks(reader)

    def read(self, digest: str) -> bytes:
        """All bytes of an object.

        Raises:
            IntegrityError: As `open`.
        """
        return b"".join(self.chunks(digest))

    def hash(self, digest: str, passing: Callable[[int], None] = lambda _: None) -> ObjectLocation:
        """Read an object through and compare its digest, without keeping its bytes; gives where it was read.

        Args:
            passing: Called after each step with how many bytes were read.

        Raises:
            IntegrityError: As `open`.
        """
        with self._open(digest) as (location, reader):
            buffer, size_bytes = self._buffer(), 0
            while count := reader.readinto(buffer):  # type: ignore[attr-defined]  # every raw reader has it
                passing(count)
                size_bytes += count
            if location.kind == "object":  # nobody may have asked for its length
                return replace(location, length=size_bytes, file_bytes=size_bytes)
            return location

    def _buffer(self) -> memoryview:
        """Where this thread reads to, again and again: new memory would cost as much as the reading."""
        buffer: memoryview | None = getattr(self._thread, "buffer", None)
        if buffer is None:
            buffer = self._thread.buffer = memoryview(bytearray(CHUNK_BYTES))
        return buffer

    def read_many(self, digests: Iterable[str]) -> Iterator[tuple[str, bytes | IntegrityError]]:
        """Many small objects, read pack by pack in few large steps, in no promised order.

        Yields:
            Digest and bytes, or the error where an object is missing or damaged.
        """
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
        """Something that adds objects; use it in a `with`."""
        self.refresh()
        absent = Absent(self._store)

        def has(digest: str, size_bytes: int) -> bool:
            if size_bytes > SMALL_BYTES:
                return self.has(digest, size_bytes, absent=absent)
            # Small objects live in packs alone, so they are not looked for in files.
            places = self._lasting(digest)
            return any(place.length == size_bytes and self._is_whole(place) for place in places)

        return ObjectWriter(self._store, self._digest_name, has, self._publish, condemned=self._condemned)

    def _publish(self, packs: list[Pack]) -> None:
        self.index.publish(packs)
        self._whole_packs.update(pack.id for pack in packs)

    def _lasting(self, digest: str) -> Sequence[IndexedObject]:
        """Where a packed object lies, without packs that a sweep is going to delete."""
        places = self.index.find(digest)
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
        return bool(self.index.find(digest)) and not self._store.exists(key)

    def _find(self, digest: str) -> IndexedObject | None:
        """Where a packed object lies; of several places one whose pack is whole, one that lasts first."""
        split_digest(digest)
        places = self.index.find(digest)
        if len(places) > 1:  # a sweep may have stored it again, and be about to delete the first one
            self._condemned.look_once()
            places = [*self._lasting(digest), *places]
            return next((place for place in places if self._is_whole(place)), places[0])
        return places[0] if places else None

    def _is_rather_a_file(self, key: str, place: IndexedObject) -> bool:
        """Whether a large object that a pack should hold is read from its own file.

        An index that was written beside a sweep may name a pack that is gone since; and whoever heals a
        damaged object stores it as a file, unless that name is condemned.
        """
        try:
            size_bytes = self._store.stat(key).size_bytes
        except NotFoundError:
            return False
        return not self._is_whole(place) or (size_bytes == place.length and key not in self._condemned)

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
            yield from ((digest, self._read_elsewhere(digest, first.key, error)) for digest, _ in group)
            return
        for digest, location in group:
            start = location.offset - first.offset
            try:
                yield digest, checked(digest, location, data[start : start + location.length])
            except IntegrityError as error:
                yield digest, error

    def _read_elsewhere(self, digest: str, key: str, error: IntegrityError) -> bytes | IntegrityError:
        try:
            with self._open_at(digest, self._elsewhere(digest, key, error)) as reader:
                return reader.read()
        except IntegrityError as still:
            return still

    def _elsewhere(self, digest: str, key: str, error: IntegrityError) -> ObjectLocation:
        """Where an object lies that could not be read in one place.

        Raises:
            IntegrityError: That place is not gone, or there is no other one.
        """
        if error.code == "pack-missing":
            found = self.locate(digest, gone=key)
            if found.key != key:
                return found
        raise error

    @contextmanager
    def _open(self, digest: str) -> Iterator[tuple[ObjectLocation, BinaryIO]]:
        """A reader of an object that compares its digest, and where it lies."""
        with ExitStack() as stack:
            yield self._enter(digest, stack)

    def _enter(self, digest: str, stack: ExitStack) -> tuple[ObjectLocation, BinaryIO]:
        held = self._hold(digest)
        if held is not None:
            location = file_location(stack.enter_context(closing(held)).info)
            return location, _checking(stack.enter_context(held.open()), digest, location)
        if self._find(digest) is None:  # its own file is looked for by the very request that reads it
            location = ObjectLocation("object", object_key(digest), 0, 0, 0)
            with suppress(NotFoundError):
                reader = stack.enter_context(self._store.open(location.key))
                return location, _checking(reader, digest, location)
        location = self.locate(digest)
        try:
            return location, stack.enter_context(self._open_at(digest, location))
        except IntegrityError as error:
            location = self._elsewhere(digest, location.key, error)
            return location, stack.enter_context(self._open_at(digest, location))

    def _open_at(self, digest: str, location: ObjectLocation) -> AbstractContextManager[BinaryIO]:
        if location.kind == "object":
            return self._open_file(digest, location)
        if location.length > READ_BYTES:
            if not self._store.exists(location.key):
                raise missing_pack(location.key.rpartition("/")[2])
            part = io.BufferedReader(PartReader(self._store, location), READ_BYTES)
            return cast("AbstractContextManager[BinaryIO]", CheckedReader(part, digest, location))
        data = self._read(location.key, location.offset, location.length)
        return nullcontext(io.BytesIO(checked(digest, location, data)))

    def _hold(self, digest: str) -> HeldFile | None:
        """An object's own file, found and opened in one go; None where it is elsewhere, or no gain."""
        if not self._holds or self._find(digest) is not None:
            return None
        try:
            return self._store.hold(object_key(digest))
        except NotFoundError:
            return None  # others may have stored it in a pack meanwhile

    @contextmanager
    def _open_file(self, digest: str, location: ObjectLocation) -> Iterator[BinaryIO]:
        try:
            opened = self._store.open(location.key)
            with opened as reader, CheckedReader(reader, digest, location) as checked:
                yield cast("BinaryIO", checked)
        except NotFoundError as error:
            raise self.index.missing_error(digest) from error


def _checking(reader: BinaryIO, digest: str, location: ObjectLocation) -> BinaryIO:
    return cast("BinaryIO", CheckedReader(reader, digest, location))
