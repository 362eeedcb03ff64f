from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.core.errors import FormatError, IntegrityError
from streambank.repository.digest import digest_of, split_digest
from streambank.repository.objects.index import (
    Index,
    decode_index,
    encode_index,
    index_ids,
    index_key,
    read_index,
)
from streambank.repository.objects.packs import Pack, PackBuilder, PackEntry
from streambank.storage.memory import MemoryStore
from tests.support.refuses import refuses


def pack_of(contents: list[bytes]) -> Pack:
    builder = PackBuilder("blake3")
    for data in contents:
        builder.add(digest_of("blake3", data), data)
    return builder.finish()[0]


packs = st.lists(
    st.lists(st.binary(max_size=20), min_size=1, max_size=5).map(pack_of),
    max_size=5,
    unique_by=lambda pack: pack.id,
)


@settings(deadline=None)
@given(packs)
def test_comes_back_and_finds_every_object(listed: list[Pack]) -> None:
    index_id, data = encode_index(listed, "blake3")
    back = decode_index(index_id, [data], "blake3")
    index = Index()
    for pack in back:
        index.add(pack)

    assert sorted(back, key=lambda pack: pack.id) == sorted(listed, key=lambda pack: pack.id)
    assert encode_index(reversed(listed), "blake3") == (index_id, data)
    assert index.pack_ids() == {pack.id for pack in listed}
    for pack in listed:
        for entry in pack.entries:
            place = index.find(entry.digest)
            assert place is not None
            assert place.length == entry.length
    assert index.find(digest_of("blake3", b"something that was never stored")) is None


@settings(deadline=None)
@given(packs.filter(bool), st.data())
def test_any_changed_byte_is_found(listed: list[Pack], draw: st.DataObject) -> None:
    index_id, data = encode_index(listed, "blake3")
    where = draw.draw(st.integers(0, len(data) - 1))
    bad = data[:where] + bytes([data[where] ^ draw.draw(st.integers(1, 255))]) + data[where + 1 :]
    for damaged in (bad, data[:where], data + b"\n", b""):
        with refuses(IntegrityError, "index-damaged") as raised:
            decode_index(index_id, [damaged], "blake3")
        assert index_key(index_id) in raised.value.message


HEADER = b'{"index": 1, "digest": "blake3"}\n'
LYING = [
    HEADER + b'{"pack": "%b", "size_bytes": 9, "objects": [%b]}\n' % (pack_id, entry)
    for pack_id, entry in [
        (b"../x", b""),
        (b"a" * 64, b"7"),
        (b"a" * 64, b'["%b", -1, 3, "none"]' % (b"0" * 64)),
        (b"a" * 64, b'["%b", 0, 281474976710656, "none"]' % (b"0" * 64)),
        (b"a" * 64, b'["%b", 0, "3", "none"]' % (b"0" * 64)),
        (b"a" * 64, b'["%b", 0, 3, null]' % (b"0" * 64)),
        (b"a" * 64, b'["x", 0, 3, "none"]'),
        (b"a" * 64, b'[0, 0, 3, "none"]'),
    ]
]


@pytest.mark.parametrize(
    "data", [*LYING, b"", b"7\n", b"[]\n", b'{"index": 1, "digest": "blake3"}\n{"pack": 5}\n', b"\xff\n"]
)
def test_junk_with_a_right_name_is_refused(data: bytes) -> None:
    index_id = split_digest(digest_of("blake3", data))[1]
    with pytest.raises(IntegrityError):
        decode_index(index_id, [data], "blake3")


def test_a_newer_format_is_named() -> None:
    data = b'{"index": 9, "digest": "blake3"}\n'
    with pytest.raises(FormatError, match="format 9"):
        decode_index(split_digest(digest_of("blake3", data))[1], [data], "blake3")


def test_a_replaced_file_is_no_error() -> None:
    store = MemoryStore()
    store.write("index/notes.txt", b"")
    index_id, data = encode_index([pack_of([b"x"])], "blake3")
    store.write(index_key(index_id), data)

    assert index_ids(store) == [index_id]
    assert read_index(store, index_id, "blake3") == [pack_of([b"x"])]
    assert read_index(store, "ab" * 32, "blake3") is None


def test_other_encodings_are_kept() -> None:
    index = Index()
    digest = digest_of("blake3", b"x")
    pack = pack_of([b"x"])
    index.add(replace(pack, entries=(replace(pack.entries[0], encoding="zstd"),)))
    place = index.find(digest)
    assert place is not None
    assert place.encoding == "zstd"


def test_an_object_stored_again_after_its_pack_was_lost_is_found_in_either_order() -> None:
    entry = PackEntry("blake3:" + "5" * 64, 0, 3)
    lost, again = Pack("a" * 64, 200, (entry,)), Pack("b" * 64, 200, (entry,))
    for packs in ([lost, again], [again, lost]):
        index = Index()
        for pack in packs:
            index.add(pack)
        first = index.find(entry.digest)
        assert first is not None
        found = {first.pack_id, *(other.pack_id for other in index.find_others(entry.digest))}
        assert found == {lost.id, again.id}
