"""Streams of LZ4 blocks, as Spark compresses state files by default.

A block is `LZ4Block`, a token (0x10 stored, 0x20 compressed, in the upper half), compressed size, size and
checksum as little-endian 32-bit numbers, then the bytes; a block of size 0 ends the stream
(net.jpountz.lz4.LZ4BlockOutputStream).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"LZ4Block"
STORED, PACKED = 0x10, 0x20
"""The upper half of a token: how the bytes of a block are kept."""
HEADER_BYTES = 21
"""`LZ4Block`, a token, and three 32-bit numbers: two sizes and a checksum."""
_HEADER = struct.Struct("<8sBiii")
_MAX_BLOCK_BYTES = 1 << 25


class LZ4Error(ValueError):
    """The bytes are not such a stream, or end too early."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a stream.

    Attributes:
        data: Its bytes, as they are in the file; fewer than its header says where the file was cut off.
        checksum: Of these: the lower 28 bits of XXH32 with seed 0x9747B28C.
    """

    stored: bool
    data: bytes
    plain_bytes: int
    checksum: int


def blocks(data: bytes) -> Iterator[Block]:
    """The blocks of a stream up to its end mark; it may be cut off behind what is read of it.

    Raises:
        LZ4Error: The bytes are not such a stream, or were cut off within a header.
    """
    position = 0
    while True:
        if len(data) - position < HEADER_BYTES:
            raise LZ4Error("it ends within a block header")
        magic, token, packed_bytes, plain_bytes, checksum = _HEADER.unpack_from(data, position)
        if magic != MAGIC:
            raise LZ4Error("it is not a stream of LZ4 blocks")
        position += HEADER_BYTES
        if not 0 <= packed_bytes <= _MAX_BLOCK_BYTES or not 0 <= plain_bytes <= _MAX_BLOCK_BYTES:
            raise LZ4Error("a block has an impossible size")
        if plain_bytes == 0:
            return
        if token & 0xF0 not in (STORED, PACKED):
            raise LZ4Error("a block has an unknown compression method")
        yield Block(token & 0xF0 == STORED, data[position : position + packed_bytes], plain_bytes, checksum)
        position += packed_bytes


def header(token: int, packed_bytes: int, plain_bytes: int, checksum: int) -> bytes:
    """The header of a block; of the end mark, with no bytes and no checksum."""
    return _HEADER.pack(MAGIC, token, packed_bytes, plain_bytes, checksum)


def is_end_mark(tail: bytes) -> bool:
    """Whether the last `HEADER_BYTES` of a file end a stream."""
    return len(tail) == HEADER_BYTES and tail.startswith(MAGIC) and not any(tail[len(MAGIC) + 1 :])


def decompress_prefix(data: bytes, wanted_bytes: int) -> bytes:
    """The first bytes of a stream, at most `wanted_bytes` (less where the stream ends before).

    Raises:
        LZ4Error: The bytes are not such a stream, or were cut off too early.
    """
    result = bytearray()
    stream = blocks(data)
    while len(result) < wanted_bytes and (block := next(stream, None)) is not None:
        wanted = min(block.plain_bytes, wanted_bytes - len(result))
        if not block.stored:
            result += _decode(block.data, wanted)
        elif len(block.data) < wanted:
            raise LZ4Error("it ends within a block")
        else:
            result += block.data[:wanted]
    return bytes(result)


def _decode(block: bytes, wanted_bytes: int) -> bytes:
    """The first bytes of one block: runs of literals, each followed by a copy from what came before."""
    output = bytearray()
    position = 0
    try:
        while len(output) < wanted_bytes:
            token = block[position]
            position += 1
            literal_bytes, position = _length(block, position, token >> 4)
            if position + literal_bytes > len(block):
                raise LZ4Error("a run of literals is longer than its block")
            output += block[position : position + literal_bytes]
            position += literal_bytes
            if position >= len(block) or len(output) >= wanted_bytes:
                break
            distance = block[position] | block[position + 1] << 8
            position += 2
            match_bytes, position = _length(block, position, token & 15)
            match_bytes += 4
            start = len(output) - distance
            if distance == 0 or start < 0:
                raise LZ4Error("a copy begins before the block")
            if distance >= match_bytes:
                output += output[start : start + match_bytes]
            else:
                pattern = bytes(output[start:])
                output += (pattern * (match_bytes // distance + 1))[:match_bytes]
    except IndexError as error:
        raise LZ4Error("a block ends early") from error
    if len(output) < wanted_bytes:
        raise LZ4Error("a block ends early")
    return bytes(output[:wanted_bytes])


def _length(block: bytes, position: int, length: int) -> tuple[int, int]:
    more = 255 if length == 15 else 0
    while more == 255:
        more = block[position]
        position, length = position + 1, length + more
    return length, position
