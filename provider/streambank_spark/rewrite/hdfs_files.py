"""The files of an HDFS-backed state store: `<version>.snapshot` and `<version>.delta`, read and written.

Both are compressed streams of rows: size and bytes of the key, size and bytes of the value, big-endian sizes;
in a delta, -1 for the value's size says that the key is gone; -1 for the key's size ends the file (Spark:
HDFSBackedStateStoreProvider). The codec is that of the offset log.

LZ4, the default, comes in blocks (checkpoint/state/lz4.py); the packages `lz4` and `xxhash` decompress
and check them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streambank.checkpoint.state import lz4
from streambank.checkpoint.state.changes import hdfs_rows
from streambank.core.errors import FormatError, StorageError

_SIZE = struct.Struct(">i")
_END = -1
_SEED = 0x9747B28C
_CHECKSUM_MASK = 0x0FFF_FFFF
_BLOCK_BYTES = 32 * 1024
"""`spark.io.compression.lz4.blockSize`, of which any is read."""
_LEVEL_BASE = 10
_PIECE_BYTES = 1 << 20
_SMALL_BYTES, _MOST_TIMES = 64 << 20, 255
"""What a file of zstd may unpack into: that much, or that many times its size, the most that LZ4 can do."""
DEFAULT_CODEC = "lz4"


def load_rows(read: Callable[[str], bytes], paths: Iterable[str], codec: str) -> dict[bytes, bytes]:
    """The rows of a partition: of its snapshot, if it has one, and of the deltas after it, by version.

    Raises:
        FormatError: A file is damaged (code `half-written`).
    """
    rows: dict[bytes, bytes] = {}
    for path in paths:
        _apply(rows, _decompress(read(path), codec, path), path)
    return rows


def _apply(rows: dict[bytes, bytes], data: bytes, path: str) -> None:
    for key, value in hdfs_rows(data, path):
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value


_DAMAGED = "The file is damaged: verify the savepoint, or use another one."


def snapshot(rows: Mapping[bytes, bytes], codec: str) -> bytes:
    """The bytes of a snapshot."""
    pack = _SIZE.pack
    pieces: list[bytes] = []
    for key, value in rows.items():
        pieces += (pack(len(key)), key, pack(len(value)), value)
    pieces.append(pack(_END))
    return _compress(b"".join(pieces), codec)


def _package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise StorageError(
            f"Rewriting HDFS-backed state needs the package {name.partition('.')[0]}. It is missing.",
            code="missing-package",
            hint="Install lz4 and xxhash, or zstandard, on the executors too.",
        ) from error


def _decompress(data: bytes, codec: str, path: str) -> bytes:
    if codec == "zstd":
        zstandard = _package("zstandard")
        try:
            with zstandard.ZstdDecompressor().stream_reader(
                io.BytesIO(data), read_across_frames=True
            ) as reader:
                most = max(_SMALL_BYTES, _MOST_TIMES * len(data))
                unpacked = bytearray()
                while piece := reader.read(_PIECE_BYTES):
                    unpacked += piece
                    if len(unpacked) > most:
                        raise FormatError(
                            f"{path} has {len(data)} bytes and unpacks into more than {most}.",
                            code="half-written",
                            hint=_DAMAGED,
                        )
                return bytes(unpacked)
        except zstandard.ZstdError as error:
            raise FormatError(f"{path} is damaged: {error}.", code="half-written", hint=_DAMAGED) from error
    decompress, xxh32 = _package("lz4.block").decompress, _package("xxhash").xxh32_intdigest
    pieces: list[bytes] = []
    try:
        for block in lz4.blocks(data):
            plain = block.data
            if not block.stored:
                plain = decompress(block.data, uncompressed_size=block.plain_bytes)
            if len(plain) != block.plain_bytes or xxh32(plain, _SEED) & _CHECKSUM_MASK != block.checksum:
                raise lz4.LZ4Error("the checksum of a block is wrong")
            pieces.append(plain)
    except (lz4.LZ4Error, _package("lz4.block").LZ4BlockError, ValueError, OverflowError) as error:
        raise FormatError(f"{path} is damaged: {error}.", code="half-written", hint=_DAMAGED) from error
    return b"".join(pieces)


def _compress(data: bytes, codec: str) -> bytes:
    if codec == "zstd":
        return bytes(_package("zstandard").ZstdCompressor(level=1).compress(data))
    block, xxh32 = _package("lz4.block"), _package("xxhash").xxh32_intdigest
    level = max(0, (_BLOCK_BYTES - 1).bit_length() - _LEVEL_BASE)
    pieces: list[bytes] = []
    for start in range(0, len(data), _BLOCK_BYTES):
        plain = data[start : start + _BLOCK_BYTES]
        packed = block.compress(plain, store_size=False)
        token = lz4.PACKED
        if len(packed) >= len(plain):
            token, packed = lz4.STORED, plain
        checksum = xxh32(plain, _SEED) & _CHECKSUM_MASK
        pieces.append(lz4.header(token | level, len(packed), len(plain), checksum))
        pieces.append(packed)
    pieces.append(lz4.header(lz4.STORED | level, 0, 0, 0))
    return b"".join(pieces)
