from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambank.checkpoint.state.lz4 import LZ4Error, blocks, decompress_prefix
from tests.support.checkpoint.lz4_streams import stored


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5), st.integers(0, 2000))
def test_stored_blocks_come_back(chunks: list[bytes], wanted: int) -> None:
    assert decompress_prefix(stored(*chunks), wanted) == b"".join(chunks)[:wanted]


def test_compressed_blocks_with_overlapping_copies_come_back() -> None:
    # Two literals "ab", then a copy of 4 + 15 + 3 bytes from 2 back, then the last literals "xyz".
    block = bytes([0x2F]) + b"ab" + b"\x02\x00" + bytes([3]) + bytes([0x30]) + b"xyz"
    plain = b"ab" + b"ab" * 11 + b"xyz"
    head = struct.pack("<8sBiii", b"LZ4Block", 0x25, len(block), len(plain), 0)
    for wanted in range(len(plain) + 1):
        assert decompress_prefix(head + block + stored(), wanted) == plain[:wanted]
    assert decompress_prefix(head + block + stored(), 1000) == plain


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x10",
        b"\xf0",
        b"\x00\x01",
        b"\x10a\x00\x00\x00",
        b"\x10a\x05\x00\x00",
        b"\x10a\x01",
        b"\xf0\xff\xff",
    ],
)
def test_a_damaged_block_is_one_clear_error(block: bytes) -> None:
    head = struct.pack("<8sBiii", b"LZ4Block", 0x25, len(block), 50, 0)
    with pytest.raises(LZ4Error):
        decompress_prefix(head + block, 50)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"LZ4Block",
        b"x" * 40,
        struct.pack("<8sBiii", b"LZ4Block", 0x35, 1, 1, 0) + b"x",
        struct.pack("<8sBiii", b"LZ4Block", 0x15, -1, 1, 0),
        struct.pack("<8sBiii", b"LZ4Block", 0x15, 1, 2**30, 0),
    ],
)
def test_what_is_no_stream_is_one_clear_error(data: bytes) -> None:
    with pytest.raises(LZ4Error):
        decompress_prefix(data, 10)


def test_the_blocks_of_a_stream_are_given_up_to_its_end_mark() -> None:
    given_ = list(blocks(stored(b"one", b"two") + b"what comes after"))
    assert [(block.stored, block.data, block.plain_bytes) for block in given_] == [
        (True, b"one", 3),
        (True, b"two", 3),
    ]
