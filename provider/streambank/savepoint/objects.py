"""The objects of a repository: where each lies, reading them checked, adding new ones, and the index."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import BinaryIO, Literal, cast

from streambank.errors import FormatError, IntegrityError, NotFoundError, StreambankError
from streambank.savepoint.digest import Hasher, digest_of, new_hasher, split_digest
from streambank.savepoint.index import Index, IndexedObject, encode_index, index_ids, index_key, read_index
from streambank.savepoint.packs import ENCODING_NONE, SMALL_BYTES, Pack, pack_key, read_pack
from streambank.savepoint.writer import ObjectWriter, object_key
from streambank.storage.base import Store

MERGE_INDEX_FILES = 64
"""So many index files are merged into one by the next writer."""
READ_BYTES = 8 << 20
"""How much of a pack is read at once."""
GAP_BYTES = 64 << 10
"""Unwanted bytes between two wanted objects that are read along rather than skipped."""


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """Where an object lies.

    Attributes:
        kind: `object` for a file of its own, `pack` for a part of a pack.
        key: That file in the repository's store.
        offset: First byte in it.
        length: How many bytes.
        file_bytes: How long that whole file should be: a pack as the index says, an object's as it is.
    """

    kind: Literal["object", "pack"]
    key: str
    offset: int
    length: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Damage:
    """A file of the repository that cannot be used.

    Attributes:
        key: The file.
        error: What is wrong with it.
    """

    key: str
    error: StreambankError


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What rebuilding the index found.

    Attributes:
        packs: How many packs are indexed now.
        objects: How many objects those hold.
        damaged: Packs that could not be read and are left alone.
    """

    packs: int
    objects: int
    damaged: tuple[Damage, ...]


class Objects:
    """The objects under one repository's root. Safe to use from several threads.

    Args:
        store: The repository's root.
        digest_name: Its digest algorithm.
    """

    def __init__(self, store: Store, digest_name: str) -> None:
        self._store = store
        self._digest_name = digest_name
        self._lock = threading.Lock()
        self._index = Index()
        self._loaded: set[str] = set()
        self._damaged: dict[str, Damage] = {}
        self._whole_packs: set[str] = set()
        self._ready = False

    # Finding

    def has(self, digest: str, size_bytes: int | None = None) -> bool:
        """See `Repository.has`."""
        place = self._find(digest)
        if place is not None and size_bytes in (None, place.length) and self._is_whole(place):
            return True
        try:
            info = self._store.stat(object_key(digest))
        except NotFoundError:
            return False
        return size_bytes in (None, info.size_bytes)

    def missing(self, digests: Iterable[str] | Mapping[str, int]) -> set[str]:
        """See `Repository.missing`."""
        if isinstance(digests, Mapping):
            return {digest for digest, size_bytes in digests.items() if not self.has(digest, size_bytes)}
        return {digest for digest in digests if not self.has(digest)}

    def locate(self, digest: str) -> ObjectLocation:
        """See `Repository.object_location`; index files that others wrote meanwhile are taken in."""
        place = self._find(digest) or self._find(digest, refresh=True)
        if place is not None:
            if place.encoding != ENCODING_NONE:
                raise FormatError(
                    f"The object {digest} is stored with the encoding {place.encoding!r}, which is not known.",
                    code="unknown-format",
                    hint="A newer Streambank wrote it: upgrade this one.",
                )
            key = pack_key(place.pack_id)
            return ObjectLocation("pack", key, place.offset, place.length, place.pack_bytes)
        key = object_key(digest)
        try:
            size_bytes = self._store.stat(key).size_bytes
            return ObjectLocation("object", key, 0, size_bytes, size_bytes)
        except NotFoundError as error:
            raise self._missing(digest) from error

    def check(self, digest: str, size_bytes: int) -> None:
        """Raise where an object is not there with this size; its bytes are not read.

        Raises:
            IntegrityError: Codes `object-missing`, `pack-missing`, `pack-damaged` or `object-damaged`.
        """
        location = self.locate(digest)
        if location.length != size_bytes:
            raise _damaged_object(digest, location, f"it has {location.length} bytes instead of {size_bytes}")
        if location.kind == "pack":
            place = self._find(digest)
            if place is not None and not self._is_whole(place):
                self._raise_pack(place)

    # Reading

    def open(self, digest: str) -> AbstractContextManager[BinaryIO]:
        """See `Repository.open_object`."""
        location = self.locate(digest)
        if location.kind == "pack":
            data = self._read(location.key, location.offset, location.length)
            return nullcontext(io.BytesIO(self._checked(digest, location, data)))
        return self._open_file(digest, location)

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
            wanted.sort(key=lambda item: item[1].offset)
            for group in _groups(wanted):
                yield from self._read_group(group)

    # Writing

    def writer(self) -> ObjectWriter:
        """See `Repository.writer`."""
        self._load(refresh=True)
        with self._lock:
            self._whole_packs.clear()
        return ObjectWriter(self._store, self._digest_name, self._has_whole, self._publish)

    # The index

    def check_index(self) -> list[Damage]:
        """See `Repository.check_index`."""
        self._load(refresh=True)
        with self._lock:
            return list(self._damaged.values())

    def unindexed_packs(self) -> set[str]:
        """Packs that no index names: left by a writer that was killed, or their index file is gone."""
        found = {info.path.rpartition("/")[2] for info in self._store.list("packs")}
        self._load(refresh=True)
        with self._lock:
            return found - self._index.pack_ids()

    def check_pack(self, pack_id: str) -> None:
        """See `Repository.check_pack`."""
        try:
            read_pack(self._store, pack_id)
        except NotFoundError as error:
            raise _missing_pack(pack_id) from error

    def rebuild_index(self) -> RebuildReport:
        """See `Repository.rebuild_index`. Safe beside writers: what they index meanwhile is kept."""
        replaced = index_ids(self._store)  # before the packs are listed: so all packs they name are seen
        packs: list[Pack] = []
        damages: list[Damage] = []
        for pack_id in sorted(info.path.rpartition("/")[2] for info in self._store.list("packs")):
            try:
                packs.append(read_pack(self._store, pack_id))
            except NotFoundError:
                continue  # a sweep took it meanwhile
            except (IntegrityError, FormatError) as error:
                damages.append(Damage(pack_key(pack_id), error))
        self._replace_index(packs, replaced)
        with self._lock:
            self._index, self._ready = Index(), False
            self._loaded.clear()
            self._damaged.clear()
        return RebuildReport(len(packs), sum(len(pack.entries) for pack in packs), tuple(damages))

    def _publish(self, packs: list[Pack]) -> None:
        """Index packs that are stored; many small index files become one on the way."""
        present = index_ids(self._store)
        if len(present) >= MERGE_INDEX_FILES:
            self._merge(present, packs)
        else:
            index_id, data = encode_index(packs, self._digest_name)
            self._store.write(index_key(index_id), data)
        with self._lock:
            for pack in packs:
                self._index.add(pack)
                self._whole_packs.add(pack.id)

    def _merge(self, present: list[str], packs: list[Pack]) -> None:
        merged = {pack.id: pack for pack in packs}
        whole = []
        for index_id in present:
            try:
                found = read_index(self._store, index_id, self._digest_name)
            except (IntegrityError, FormatError):
                continue  # it stays where it is, for check_index to name
            if found is not None:
                merged.update({pack.id: pack for pack in found})
                whole.append(index_id)
        self._replace_index(list(merged.values()), whole)

    def _replace_index(self, packs: list[Pack], replaced: list[str]) -> None:
        """Write one index file in place of others, which are deleted only after it is there."""
        index_id, data = encode_index(packs, self._digest_name)
        if index_id not in replaced or self._store.stat(index_key(index_id)).size_bytes != len(data):
            self._store.write(index_key(index_id), data)
        for old in replaced:
            if old != index_id:
                self._store.delete(index_key(old))

    def _load(self, *, refresh: bool) -> None:
        with self._lock:
            if self._ready and not refresh:
                return
            while self._load_new():
                pass  # a file vanished: another one has taken its place
            self._ready = True

    def _load_new(self) -> bool:
        """Take in index files not seen so far; whether one vanished between listing and reading."""
        vanished = False
        for index_id in index_ids(self._store):
            if index_id in self._loaded:
                continue
            try:
                packs = read_index(self._store, index_id, self._digest_name)
            except (IntegrityError, FormatError) as error:
                self._damaged[index_id] = Damage(index_key(index_id), error)
                continue
            if packs is None:
                vanished = True
                continue
            for pack in packs:
                self._index.add(pack)
            self._loaded.add(index_id)
            self._damaged.pop(index_id, None)
        return vanished

    def _find(self, digest: str, *, refresh: bool = False) -> IndexedObject | None:
        split_digest(digest)
        self._load(refresh=refresh)
        return self._index.find(digest)

    def _has_whole(self, digest: str, size_bytes: int) -> bool:
        """What a writer asks: small objects live in packs and large ones in files, so one look is enough."""
        if size_bytes > SMALL_BYTES:
            return self.has(digest, size_bytes)
        place = self._find(digest)
        return place is not None and place.length == size_bytes and self._is_whole(place)

    def _is_whole(self, place: IndexedObject) -> bool:
        """Whether a pack is there with the size it was written with; asked once a pack."""
        if place.pack_id in self._whole_packs:
            return True
        try:
            whole = self._store.stat(pack_key(place.pack_id)).size_bytes == place.pack_bytes
        except NotFoundError:
            return False
        if whole:
            with self._lock:
                self._whole_packs.add(place.pack_id)
        return whole

    def _raise_pack(self, place: IndexedObject) -> None:
        self.check_pack(place.pack_id)
        raise IntegrityError(
            f"The pack {pack_key(place.pack_id)} is damaged: it is not as long as the index says.",
            code="pack-damaged",
            hint="Savepoints whose files lie in it cannot be restored from here: use another one, or a replica.",
        )

    def _read(self, key: str, offset: int, length: int) -> bytes:
        try:
            return self._store.read(key, offset, length)
        except NotFoundError as error:
            raise _missing_pack(key.rpartition("/")[2]) from error

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
            part = data[start : start + location.length]
            try:
                yield digest, self._checked(digest, location, part)
            except IntegrityError as error:
                yield digest, error

    def _checked(self, digest: str, location: ObjectLocation, data: bytes) -> bytes:
        if digest_of(split_digest(digest)[0], data) != digest:
            raise _damaged_object(digest, location, "its bytes are not those that were stored")
        return data

    @contextmanager
    def _open_file(self, digest: str, location: ObjectLocation) -> Iterator[BinaryIO]:
        try:
            opened = self._store.open(location.key)
            with opened as reader, _CheckedReader(reader, digest, location) as checked:
                yield cast("BinaryIO", checked)
        except NotFoundError as error:
            raise self._missing(digest) from error

    def _missing(self, digest: str) -> IntegrityError:
        with self._lock:
            damaged = sorted(self._damaged)
        if damaged:
            return IntegrityError(
                f"The object {digest} cannot be found, and {index_key(damaged[0])} is damaged.",
                code="index-damaged",
                hint="Make the index again from the packs, which may hold it (docs/formats/repository.md, Index).",
            )
        return IntegrityError(
            f"The repository does not hold the object {digest} any more.",
            code="object-missing",
            hint="Savepoints that need it cannot be restored from here: use another one, or a replica.",
        )


class _CheckedReader(io.RawIOBase):
    """Reads a file through, and compares its digest where it ends."""

    def __init__(self, reader: BinaryIO, digest: str, location: ObjectLocation) -> None:
        self._reader = reader
        self._digest = digest
        self._location = location
        self._algorithm = split_digest(digest)[0]
        self._hasher: Hasher = new_hasher(self._algorithm)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data = self._reader.read(size)
        self._hasher.update(data)
        if size < 0 or (not data and size):
            self._compare()
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # not every Buffer
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _compare(self) -> None:
        if f"{self._algorithm}:{self._hasher.hexdigest()}" != self._digest:
            raise _damaged_object(self._digest, self._location, "its bytes are not those that were stored")


def _groups(wanted: list[tuple[str, ObjectLocation]]) -> Iterator[list[tuple[str, ObjectLocation]]]:
    """Objects of one pack that are read in one step, in order of their offsets."""
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


def _damaged_object(digest: str, location: ObjectLocation, why: str) -> IntegrityError:
    where = location.key if location.kind == "object" else f"{location.key} at {location.offset}"
    return IntegrityError(
        f"The object {digest} in {where} is damaged: {why}.",
        code="object-damaged",
        hint="Savepoints that need it cannot be restored from here: use another one, or a replica.",
    )


def _missing_pack(pack_id: str) -> IntegrityError:
    return IntegrityError(
        f"The pack {pack_key(pack_id)} is gone.",
        code="pack-missing",
        hint="Savepoints whose files lie in it cannot be restored from here: use another one, or a replica.",
    )
