"""The index: which pack holds an object, and where.

Each file `index/<id>.jsonl` lists the contents of some packs, one pack a line; its id is the digest of its
bytes. A reader merges all files. Nothing is lost with an index file: it is made again from the packs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from streambank.core.errors import FormatError, IntegrityError, NotFoundError
from streambank.core.json_text import loads
from streambank.core.lines import whole_lines
from streambank.repository.digest import Hasher, digest_of, is_digest, new_hasher, split_digest
from streambank.repository.objects.packs import Pack, PackEntry
from streambank.repository.sealed import dumps
from streambank.storage.store import Store, chunks, undamaged

INDEX_FORMAT = 1
INDEX_FOLDER = "index"
REINDEX_HINT = "Nothing is lost: `streambank reindex` rebuilds the index from the packs."
_LONGEST_LINE_BYTES = 64 << 20
"""Of a line, which lists what one pack holds."""
_BITS = 48
_MOST = (1 << _BITS) - 1  # the largest offset or length: 256 TiB
_PACK_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class IndexedObject:
    """Where a packed object lies.

    Attributes:
        pack_bytes: Size of the pack's whole file.
    """

    pack_id: str
    pack_bytes: int
    offset: int
    length: int
    encoding: str


class Index:
    """All index files of a repository, merged in memory. Locking is the owner's."""

    def __init__(self) -> None:
        self._packs: list[tuple[str, int]] = []
        self._numbers: dict[str, int] = {}
        self._places: dict[
            bytes, int
        ] = {}  # number of the pack, offset and length in one integer: half the memory
        self._others: dict[bytes, list[int]] = {}
        self._encodings: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, pack: Pack) -> None:
        """Take in what a pack holds."""
        if pack.id in self._numbers:
            return
        number = self._numbers[pack.id] = len(self._packs)
        self._packs.append((pack.id, pack.size_bytes))
        for entry in pack.entries:
            digest = bytes.fromhex(split_digest(entry.digest)[1])
            place = (number << _BITS | entry.offset) << _BITS | entry.length
            if self._places.setdefault(digest, place) != place:
                self._others.setdefault(digest, []).append(place)
            if entry.encoding != "none":
                self._encodings[digest] = entry.encoding

    def find(self, digest: str) -> IndexedObject | None:
        """Where an object lies, if a pack holds it."""
        raw = bytes.fromhex(digest[-64:])
        place = self._places.get(raw)
        return None if place is None else self._object(raw, place)

    def find_others(self, digest: str) -> list[IndexedObject]:
        """Where else an object lies: it was stored again since a pack with it had been lost."""
        raw = bytes.fromhex(digest[-64:])
        return [self._object(raw, place) for place in self._others.get(raw, ())]

    def _object(self, raw: bytes, place: int) -> IndexedObject:
        offset, length = place >> _BITS & _MOST, place & _MOST
        pack_id, pack_bytes = self._packs[place >> 2 * _BITS]
        return IndexedObject(pack_id, pack_bytes, offset, length, self._encodings.get(raw, "none"))

    def pack_ids(self) -> set[str]:
        """Every pack that is indexed."""
        return set(self._numbers)


def index_key(index_id: str) -> str:
    """Where an index file lies in its repository."""
    return f"{INDEX_FOLDER}/{index_id}.jsonl"


def encode_index(packs: Iterable[Pack], digest_name: str) -> tuple[str, bytes]:
    """Id and bytes of an index file for these packs."""
    data = b"".join(_index_lines(packs, digest_name))
    return split_digest(digest_of(digest_name, data))[1], data


def decode_index(index_id: str, content: Iterable[bytes], digest_name: str) -> list[Pack]:
    """The packs that an index file lists.

    Raises:
        IntegrityError: Its bytes are not what they were (code `index-damaged`).
        FormatError: A newer Streambank wrote it (code `unknown-format`).
    """
    key = index_key(index_id)
    hasher = new_hasher(digest_name)
    try:
        lines = _lines(content, hasher)
        header = loads(next(lines, b""))
        newer = header["index"] != INDEX_FORMAT
        packs = [_decode_pack(loads(line), header["digest"]) for line in (() if newer else lines)]
        for _ in lines:
            pass
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(key, "it cannot be read") from error
    if hasher.hexdigest() != index_id:
        raise _damaged(key, "its content has changed since it was written")
    if newer:
        raise FormatError(
            f"The index file {key} is of format {header['index']}, and only {INDEX_FORMAT} is known.",
            code="unknown-format",
            hint="A newer Streambank wrote it: upgrade this one.",
        )
    return packs


def _lines(content: Iterable[bytes], hasher: Hasher) -> Iterator[bytes]:
    for block in whole_lines(content, _LONGEST_LINE_BYTES):
        hasher.update(block)
        yield from block.splitlines()


def read_index(store: Store, index_id: str, digest_name: str) -> list[Pack] | None:
    """The packs that an index file lists; None where it was replaced by another one meanwhile."""

    def read() -> list[Pack]:
        with store.open(index_key(index_id)) as reader:
            return decode_index(index_id, chunks(reader), digest_name)

    try:
        return undamaged(read)
    except NotFoundError:
        return None


def index_ids(store: Store) -> list[str]:
    """Ids of all index files that are there."""
    return [name.removesuffix(".jsonl") for name in store.names(INDEX_FOLDER) if name.endswith(".jsonl")]


def _index_lines(packs: Iterable[Pack], digest_name: str) -> Iterator[bytes]:
    yield f"{dumps({'index': INDEX_FORMAT, 'digest': digest_name})}\n".encode()
    for pack in sorted(packs, key=lambda pack: pack.id):
        objects = [
            [split_digest(entry.digest)[1], entry.offset, entry.length, entry.encoding]
            for entry in pack.entries
        ]
        yield f"{dumps({'pack': pack.id, 'size_bytes': pack.size_bytes, 'objects': objects})}\n".encode()


def _decode_pack(line: dict[str, object], digest_name: str) -> Pack:
    pack_id, size_bytes, objects = line["pack"], line["size_bytes"], line["objects"]
    if not isinstance(pack_id, str) or not _PACK_ID.fullmatch(pack_id):
        raise TypeError("a pack without an id")
    if type(size_bytes) is not int or not isinstance(objects, list):
        raise TypeError("a field of another type")
    entries = tuple(
        PackEntry(f"{digest_name}:{digits}", offset, length, encoding)
        for digits, offset, length, encoding in objects
    )
    for entry in entries:
        if not is_digest(entry.digest) or not isinstance(entry.encoding, str):
            raise TypeError("an object without a digest or an encoding")
        for number in (entry.offset, entry.length):
            if type(number) is not int or not 0 <= number <= _MOST:
                raise ValueError("a number that cannot be")
    return Pack(pack_id, size_bytes, entries)


def _damaged(key: str, why: str) -> IntegrityError:
    return IntegrityError(
        f"The index file {key} is damaged: {why}.",
        code="index-damaged",
        hint=REINDEX_HINT,
    )
