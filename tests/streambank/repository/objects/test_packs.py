from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.core.errors import FormatError, IntegrityError, NotFoundError, StreambankError
from streambank.repository.digest import digest_of
from streambank.repository.objects.packs import TRAILER_BYTES, Pack, PackBuilder, pack_key, read_pack
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses

HEADER = b'{"pack": 1, "objects": 1}\n'
objects = st.lists(st.binary(max_size=300), max_size=20)


def packed(contents: list[bytes], digest_name: str = "blake3") -> tuple[Pack, bytes]:
    builder = PackBuilder(digest_name)
    for data in contents:
        builder.add(digest_of(digest_name, data), data)
    pack, chunks = builder.finish()
    return pack, b"".join(chunks)


def stored(pack_id: str, data: bytes) -> MemoryStore:
    store = MemoryStore()
    store.write(pack_key(pack_id), data)
    return store


def check(pack_id: str, data: bytes) -> None:
    """Read a pack with all its objects, as a full verification does."""
    pack = read_pack(stored(pack_id, data), pack_id)
    for entry in pack.entries:
        part = data[entry.offset : entry.offset + entry.length]
        if digest_of(entry.digest.partition(":")[0], part) != entry.digest:
            raise IntegrityError("an object is damaged")


@given(objects, st.sampled_from(["blake3", "sha256"]))
def test_a_pack_tells_by_itself_what_it_holds(contents: list[bytes], digest_name: str) -> None:
    pack, data = packed(contents, digest_name)

    assert read_pack(stored(pack.id, data), pack.id) == pack
    assert pack.size_bytes == len(data)
    assert [data[entry.offset : entry.offset + entry.length] for entry in pack.entries] == contents
    assert data.startswith(b"".join(contents))


def test_a_large_table_is_read_too() -> None:
    pack, data = packed([b"%d" % number for number in range(4000)])
    assert len(data) > 500_000
    assert read_pack(stored(pack.id, data), pack.id) == pack


@settings(max_examples=300)
@given(objects.filter(bool), st.data())
def test_any_changed_byte_is_found(contents: list[bytes], draw: st.DataObject) -> None:
    pack, data = packed(contents)
    where = draw.draw(st.integers(0, len(data) - 1))
    change = draw.draw(st.integers(1, 255))
    bad = data[:where] + bytes([data[where] ^ change]) + data[where + 1 :]
    with pytest.raises((IntegrityError, FormatError)):
        check(pack.id, bad)


@given(objects.filter(bool), st.data())
def test_any_cut_and_any_added_bytes_are_found(contents: list[bytes], draw: st.DataObject) -> None:
    pack, data = packed(contents)
    end = draw.draw(st.integers(0, len(data) - 1))
    more = draw.draw(st.binary(min_size=1, max_size=5))
    where = draw.draw(st.integers(0, len(data)))
    for bad in (data[:end], data[end + 1 :], data[:where] + more + data[where:], bytes(len(data))):
        with pytest.raises(IntegrityError):
            check(pack.id, bad)


def test_another_pack_in_its_place_is_found() -> None:
    pack, _ = packed([b"one"])
    _, other = packed([b"two"])
    with refuses(IntegrityError, "pack-damaged") as raised:
        read_pack(stored(pack.id, other), pack.id)
    assert pack_key(pack.id) in raised.value.message


def test_a_newer_format_is_named() -> None:
    pack, data = packed([b"one"])
    newer = data[:-TRAILER_BYTES] + data[-TRAILER_BYTES:].replace(b"pack 01", b"pack 02")
    with pytest.raises(FormatError, match="format 2"):
        read_pack(stored(pack.id, newer), pack.id)


def lying(table: bytes, contents: bytes) -> tuple[str, bytes]:
    """A pack whose table of contents is sealed rightly, and lies."""
    digest = digest_of("blake3", table)
    trailer = f"streambank-pack 01 {len(table):016d} {digest}\n".encode()
    return digest.partition(":")[2], contents + table + trailer


@pytest.mark.parametrize(
    "table",
    [  # the object is b"one"
        b"",
        b"\n",
        b"7\n",
        b"not json\n",
        b'{"pack": 1, "objects": 1}\n',
        b'{"pack": 1, "objects": 1}\n{}\n',
        b'{"pack": 1, "objects": 1}\n{"digest": "x", "offset": 0, "length": 3, "encoding": "none"}\n',
        HEADER + b'{"digest": "blake3:%b", "offset": 1, "length": 2, "encoding": "none"}\n' % (b"0" * 64),
        HEADER + b'{"digest": "blake3:%b", "offset": 0, "length": -3, "encoding": "none"}\n' % (b"0" * 64),
        HEADER + b'{"digest": "blake3:%b", "offset": 0, "length": 99, "encoding": "none"}\n' % (b"0" * 64),
        HEADER + b'{"digest": "blake3:%b", "offset": 0, "length": "3", "encoding": "none"}\n' % (b"0" * 64),
        b'{"pack": 1, "objects": 2}\n{"digest": "blake3:%b", "offset": 0, "length": 3, "encoding": "none"}\n'
        % (b"0" * 64),
    ],
)
def test_a_table_that_lies_is_refused(table: bytes) -> None:
    pack_id, data = lying(table, b"one")
    with refuses(IntegrityError, "pack-damaged"):
        read_pack(stored(pack_id, data), pack_id)


@given(st.binary(max_size=400))
def test_junk_is_refused(junk: bytes) -> None:
    with pytest.raises(StreambankError):
        read_pack(stored("ab" * 32, junk), "ab" * 32)


def test_a_missing_pack_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        read_pack(MemoryStore(), "ab" * 32)
