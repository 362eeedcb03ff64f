"""Packs: many small objects in one file, which tells by itself what it holds.

    object bytes, one after the other
    table of contents: JSON lines, a header and then one line an object
    trailer: 108 ASCII characters with the table's length and digest

The pack's id is the digest of its table, which holds each object's digest: so the id vouches for every byte.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.core.errors import FormatError, IntegrityError
from streambank.core.json_text import loads
from streambank.core.lines import gathered
from streambank.repository.digest import digest_of, is_digest, split_digest
from streambank.repository.sealed import dumps
from streambank.storage.store import CHUNK_BYTES, Store

SMALL_BYTES = 512 << 10
"""Objects up to this size travel in packs; larger ones are separate files, which a restore may link."""
PACK_BYTES = 32 << 20
"""A pack is closed once it holds this much."""
MOST_OBJECTS = 1 << 17
"""A pack is also closed once it holds so many: its table of contents is read as a whole."""
_MOST_TABLE_BYTES = 64 << 20
PACK_FORMAT = 1
ENCODING_NONE = "none"
TRAILER_BYTES = 108
TABLE_HINT = (
    "If its length has not changed and the index knows it, `streambank reindex` writes its table of contents "
    "again. Else take the batch again if its checkpoint is still there, or use another savepoint."
)
_TAIL_BYTES = 256 << 10  # read at once; holds trailer and table of most packs
_SALT = re.compile(rb'"salt": "([0-9a-f]{32})"')
_TRAILER = re.compile(rb"streambank-pack (\d{2}) (\d{16}) ((?:blake3|sha256):[0-9a-f]{64})\n")


@dataclass(frozen=True, slots=True)
class PackEntry:
    """Where one object lies in its pack.

    Attributes:
        digest: The object's digest, as `name:hex`.
        encoding: How it is stored; only `none` today.
    """

    digest: str
    offset: int
    length: int
    encoding: str = ENCODING_NONE


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack's table of contents.

    Attributes:
        id: Hex digest of the table.
        size_bytes: Size of the whole file.
        entries: Its objects, in the order of their offsets, without gaps.
    """

    id: str
    size_bytes: int
    entries: tuple[PackEntry, ...]


def pack_key(pack_id: str) -> str:
    """Where a pack lies in its repository."""
    return f"packs/{pack_id[:2]}/{pack_id}"


class PackBuilder:
    """Collects small objects until they are worth a file. Not safe to share between threads."""

    def __init__(self, digest_name: str) -> None:
        self.size_bytes = 0
        self._digest_name = digest_name
        self._parts: list[bytes] = []
        self._entries: list[PackEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, digest: str, data: bytes) -> None:
        """Put one object at the end."""
        self._entries.append(PackEntry(digest, self.size_bytes, len(data)))
        self._parts.append(data)
        self.size_bytes += len(data)

    def digests(self) -> list[str]:
        """Digests of the objects so far."""
        return [entry.digest for entry in self._entries]

    def finish(self, salt: str = "") -> tuple[Pack, list[bytes]]:
        """The pack and the chunks of its file; with a salt under a name that it has never had."""
        pack, tail = seal_pack(self._entries, self._digest_name, salt)
        return pack, [*gathered(self._parts, CHUNK_BYTES), *tail]


def seal_pack(entries: Sequence[PackEntry], digest_name: str, salt: str = "") -> tuple[Pack, list[bytes]]:
    """The pack that holds these objects, and the chunks that follow their bytes in its file."""
    table = b"".join(_table_lines(entries, salt))
    digest = digest_of(digest_name, table)
    trailer = f"streambank-pack {PACK_FORMAT:02d} {len(table):016d} {digest}\n".encode()
    size_bytes = (entries[-1].offset + entries[-1].length if entries else 0) + len(table) + TRAILER_BYTES
    return Pack(split_digest(digest)[1], size_bytes, tuple(entries)), [table, trailer]


def read_pack(store: Store, pack_id: str) -> Pack:
    """The table of contents of a pack, checked against its id.

    Raises:
        NotFoundError: There is no such pack.
        IntegrityError: Table, trailer or length are not what they were (code `pack-damaged`).
        FormatError: A newer Streambank wrote it (code `unknown-format`).
    """
    key = pack_key(pack_id)
    size_bytes = store.stat(key).size_bytes
    tail_start = max(0, size_bytes - _TAIL_BYTES)
    tail = store.read(key, tail_start)
    trailer = _TRAILER.fullmatch(tail[-TRAILER_BYTES:])
    if trailer is None:
        raise _damaged(key, "its trailer cannot be read")
    if int(trailer[1]) != PACK_FORMAT:
        raise FormatError(
            f"The pack {key} is of format {int(trailer[1])}, and only format {PACK_FORMAT} is known.",
            code="unknown-format",
            hint="A newer Streambank wrote it: upgrade this one.",
        )
    table_bytes = int(trailer[2])
    table_start = size_bytes - TRAILER_BYTES - table_bytes
    if table_start < 0:
        raise _damaged(key, "it is shorter than its table of contents")
    if table_bytes > _MOST_TABLE_BYTES:
        raise _damaged(key, f"its table of contents has more than {_MOST_TABLE_BYTES} bytes")
    if table_start >= tail_start:
        table = tail[table_start - tail_start : -TRAILER_BYTES]
    else:
        table = store.read(key, table_start, table_bytes)
    algorithm, digits = split_digest(trailer[3].decode())
    if digits != pack_id or digest_of(algorithm, table) != f"{algorithm}:{pack_id}":
        raise _damaged(key, "its table of contents has changed since it was written")
    entries = _parse_table(table, key)
    if (entries[-1].offset + entries[-1].length if entries else 0) != table_start:
        raise _damaged(key, "its length is not what its table of contents says")
    return Pack(pack_id, size_bytes, entries)


def repair_table(store: Store, pack: Pack, digest_name: str) -> bool:
    """Write the table of contents of a pack again, from what the index says about it.

    The pack's id is the digest of its table, so it is proven that the table is the one it was written with.
    The objects before it are left as they are; each has its own digest.

    Returns:
        Whether the table is right now; False where the index says something else than the lost table did, or
        the file is not as long as it was.

    Raises:
        NotFoundError: The pack is gone.
    """
    key = pack_key(pack.id)
    if store.stat(key).size_bytes != pack.size_bytes:
        return False
    data = store.read(key)
    salt = _SALT.search(data, sum(entry.length for entry in pack.entries))
    entries = list(pack.entries)
    for each in {"", salt[1].decode() if salt else ""}:
        sealed, tail = seal_pack(entries, digest_name, each)
        if sealed.id == pack.id and sealed.size_bytes == len(data) == pack.size_bytes:
            objects = data[: len(data) - sum(map(len, tail))]
            if data != objects + b"".join(tail):
                store.write(key, [objects, *tail])
            return True
    return False


def _table_lines(entries: Sequence[PackEntry], salt: str) -> Iterator[bytes]:
    size_bytes = entries[-1].offset + entries[-1].length if entries else 0
    header: dict[str, object] = {"pack": PACK_FORMAT, "objects": len(entries), "size_bytes": size_bytes}
    yield f"{dumps(header | {'salt': salt} if salt else header)}\n".encode()
    for entry in entries:  # digests and encodings need no escaping
        yield (
            f'{{"digest": "{entry.digest}", "offset": {entry.offset}, "length": {entry.length}, '
            f'"encoding": "{entry.encoding}"}}\n'
        ).encode()


def _parse_table(table: bytes, key: str) -> tuple[PackEntry, ...]:
    """The entries of a table whose digest is right; what is wrong now was written wrong."""
    try:
        lines = (loads(line) for line in io.BytesIO(table))
        header: dict[str, Any] = next(lines, {})
        entries = tuple(
            PackEntry(line["digest"], line["offset"], line["length"], line["encoding"]) for line in lines
        )
        counted = header["objects"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(key, "its table of contents cannot be read") from error
    end = 0
    for entry in entries:
        if (
            not is_digest(entry.digest)
            or entry.offset != end
            or type(entry.length) is not int
            or entry.length < 0
        ):
            raise _damaged(key, "its table of contents contradicts itself")
        end += entry.length
    if counted != len(entries):
        raise _damaged(key, "its table of contents has lost lines")
    return entries


def _damaged(key: str, why: str) -> IntegrityError:
    return IntegrityError(
        f"The pack {key} is damaged: {why}.",
        code="pack-damaged",
        hint=TABLE_HINT,
    )
