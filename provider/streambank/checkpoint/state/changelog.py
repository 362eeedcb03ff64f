"""The lineage at the head of a RocksDB changelog of checkpoint format v2: which versions it builds on.

A changelog is one compressed stream; in it, `v3` or `v4` (with column families) and then the lineage as JSON,
both as Java's UTF strings. Versions 1 and 2 carry no lineage (Spark: StateStoreChangelog).

Spark compresses state files with LZ4 in the LZ4Block framing by default. A block is `LZ4Block`, a token (0x10
stored, 0x20 compressed, in the upper half), compressed size, size and checksum as little-endian 32-bit
numbers, then the bytes; a block of size 0 ends the stream (net.jpountz.lz4.LZ4BlockOutputStream). Only what
is wanted is decoded: the lineage at the head of a changelog is some hundred bytes.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from streambank.checkpoint.text import HALF_WRITTEN_HINT, load_json
from streambank.core.errors import FormatError

HEAD_BYTES = 1 << 17
"""How much of a changelog is enough to hold its lineage, compressed: Java's strings end at 64 KiB."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_FIRST_BYTES = 4096


@dataclass(frozen=True, slots=True, order=True)
class LineageItem:
    """One version of a store and the unique id of the attempt that was committed."""

    version: int
    unique_id: str


class UnreadableLineageError(Exception):
    """The lineage is compressed with something that cannot be read here; the commit log may tell the same."""


def parse_lineage(head: bytes, path: str) -> list[LineageItem]:
    """The versions before this changelog's own, back to and with a snapshot (or version 1), oldest first.

    Args:
        head: The first `HEAD_BYTES` of the changelog.
        path: How to name it in an error.

    Raises:
        UnreadableLineageError: Its codec is none of lz4 and zstd, or zstd is not installed.
        FormatError: `half-written`, or `unknown-version` for a changelog of a newer Spark.
    """
    plain = _decompress(head, _FIRST_BYTES, path)
    version, position = _java_string(plain, 0, path)
    if version not in ("v3", "v4"):
        known = "no lineage" if version in ("v1", "v2") else f"the unknown version {version[:20]!r}"
        raise FormatError(
            f"{path} has {known}, where checkpoint format v2 was expected.",
            code="unknown-version",
            hint="A newer Spark wrote it, or the file belongs to another query: report the Spark version.",
        )
    (length,) = struct.unpack_from(">H", plain, position) if len(plain) >= position + 2 else (0,)
    if position + 2 + length > len(plain):
        plain = _decompress(head, position + 2 + length, path)
    text, _ = _java_string(plain, position, path)
    entries = load_json(text, path)
    try:
        if not isinstance(entries, list):
            raise TypeError("it is no list")
        items = [LineageItem(int(entry["version"]), str(entry["checkpointUniqueId"])) for entry in entries]
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(
            f"{path} has a lineage that is not understood.",
            code="half-written",
            hint="Take a newer batch; if the file is whole, report it.",
        ) from error
    return sorted(items)


def _decompress(head: bytes, wanted_bytes: int, path: str) -> bytes:
    damaged = f"{path} cannot be decompressed"
    if head.startswith(MAGIC):
        try:
            return decompress_prefix(head, wanted_bytes)
        except LZ4Error as error:
            raise FormatError(f"{damaged}: {error}.", code="half-written", hint=HALF_WRITTEN_HINT) from error
    if head.startswith(_ZSTD_MAGIC):
        try:
            import zstandard
        except ImportError as error:
            raise UnreadableLineageError("zstd") from error
        try:
            return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(head)).read(wanted_bytes)
        except zstandard.ZstdError as error:
            raise FormatError(f"{damaged}: {error}.", code="half-written", hint=HALF_WRITTEN_HINT) from error
    raise UnreadableLineageError("unknown")


def _java_string(data: bytes, position: int, path: str) -> tuple[str, int]:
    if len(data) >= position + 2:
        (length,) = struct.unpack_from(">H", data, position)
        end = position + 2 + length
        if end <= len(data):
            return data[position + 2 : end].decode("utf-8", "replace"), end
    raise FormatError(f"{path} ends within its head.", code="half-written", hint=HALF_WRITTEN_HINT)


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
