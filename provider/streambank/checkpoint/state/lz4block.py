"""The beginning of a stream in the LZ4Block framing, which is how Spark compresses state files by default.

A block is `LZ4Block`, a token (0x10 stored, 0x20 compressed, in the upper half), compressed size, size and
checksum as little-endian 32-bit numbers, then the bytes; a block of size 0 ends the stream
(net.jpountz.lz4.LZ4BlockOutputStream). Only what is wanted is decoded: the lineage at the head of a
changelog is some hundred bytes.
"""

from __future__ import annotations

import struct

MAGIC = b"LZ4Block"
_HEADER = struct.Struct("<8sBiii")
_MAX_BLOCK_BYTES = 1 << 25


class LZ4Error(ValueError):
    """The bytes are no such stream, or end too early."""


def decompress_prefix(data: bytes, wanted_bytes: int) -> bytes:
    """The first bytes of a stream, at most `wanted_bytes` (less where the stream ends before).

    Args:
        data: The stream from its beginning; it may be cut off behind what is wanted.
        wanted_bytes: How many decompressed bytes are wanted.

    Raises:
        LZ4Error: The bytes are no such stream, or were cut off too early.
    """
    result = bytearray()
    position = 0
    while len(result) < wanted_bytes:
        if len(data) - position < _HEADER.size:
            raise LZ4Error("it ends within a block header")
        magic, token, packed_bytes, plain_bytes, _ = _HEADER.unpack_from(data, position)
        if magic != MAGIC:
            raise LZ4Error("it does not begin with LZ4Block")
        position += _HEADER.size
        if not 0 <= packed_bytes <= _MAX_BLOCK_BYTES or not 0 <= plain_bytes <= _MAX_BLOCK_BYTES:
            raise LZ4Error("a block has an impossible size")
        if plain_bytes == 0:
            break
        block = data[position : position + packed_bytes]
        wanted = min(plain_bytes, wanted_bytes - len(result))
        match token & 0xF0:
            case 0x10:
                if len(block) < wanted:
                    raise LZ4Error("it ends within a block")
                result += block[:wanted]
            case 0x20:
                result += _decode(block, wanted)
            case _:
                raise LZ4Error("a block has an unknown compression method")
        position += packed_bytes
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
    if length == 15:
        while True:
            more = block[position]
            position += 1
            length += more
            if more != 255:
                break
    return length, position
