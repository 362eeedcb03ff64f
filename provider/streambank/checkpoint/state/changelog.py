"""The lineage at the head of a RocksDB changelog of checkpoint format v2: which versions it builds on.

A changelog is one compressed stream; in it, `v3` or `v4` (with column families) and then the lineage as JSON,
both as Java's UTF strings. Versions 1 and 2 carry no lineage (Spark: StateStoreChangelog).

The stream is one of LZ4 blocks (lz4.py) by default. Only its head is decompressed, since the lineage is some
hundred bytes long.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from streambank.checkpoint.state.lz4 import MAGIC, LZ4Error, decompress_prefix
from streambank.checkpoint.text import half_written, load_json
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

    Raises:
        UnreadableLineageError: Its codec is none of lz4 and zstd, or zstd is not installed.
        FormatError: `half-written`, or `unknown-version` for a changelog of a newer Spark.
    """
    plain = decompress_head(head, _FIRST_BYTES, path)
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
        plain = decompress_head(head, position + 2 + length, path)
    text, _ = _java_string(plain, position, path)
    entries = load_json(text, path)
    try:
        if not isinstance(entries, list):
            raise TypeError("it is no list")
        items = [LineageItem(int(entry["version"]), str(entry["checkpointUniqueId"])) for entry in entries]
    except (ValueError, TypeError, KeyError) as error:
        raise half_written(
            f"{path} has a lineage that is not understood.",
            "Take a newer batch; if the file is whole, report it.",
        ) from error
    return sorted(items)


def decompress_head(head: bytes, wanted_bytes: int, path: str) -> bytes:
    """The first plain bytes of a state file, at most `wanted_bytes`; less where the file ends before.

    Raises:
        UnreadableLineageError: Its codec is none of lz4 and zstd, or zstd is not installed.
        FormatError: It is damaged (code `half-written`).
    """
    damaged = f"{path} cannot be decompressed"
    if head.startswith(MAGIC):
        try:
            return decompress_prefix(head, wanted_bytes)
        except LZ4Error as error:
            raise half_written(f"{damaged}: {error}.") from error
    if head.startswith(_ZSTD_MAGIC):
        try:
            import zstandard
        except ImportError as error:
            raise UnreadableLineageError("zstd") from error
        try:
            return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(head)).read(wanted_bytes)
        except zstandard.ZstdError as error:
            raise half_written(f"{damaged}: {error}.") from error
    raise UnreadableLineageError("unknown")


def _java_string(data: bytes, position: int, path: str) -> tuple[str, int]:
    if len(data) >= position + 2:
        (length,) = struct.unpack_from(">H", data, position)
        end = position + 2 + length
        if end <= len(data):
            return data[position + 2 : end].decode("utf-8", "replace"), end
    raise half_written(f"{path} ends within its head.")
