"""What a RocksDB snapshot names: the `metadata` inside `<version>[_<unique id>].zip`.

The zip holds RocksDB's small files; the SST files, which hold the rows, lie in `SSTs/` beside it and are
shared between snapshots (Spark: RocksDBFileManager, RocksDBCheckpointMetadata).
"""

from __future__ import annotations

import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streambank.checkpoint.text import half_written, load_json, parse_version

MAX_ZIP_METADATA_VERSION = 2

_MAX_METADATA_BYTES = 1 << 26
_WRITTEN_BY_SPARK = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Ways to compress; of others Python's zipfile decompresses all that there is, however much."""
# What zipfile lets through where bytes are no zip, an encrypted one, or a damaged member of any compression.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
)

ReadRange = Callable[[str, int, int | None], bytes]
"""Reads `length` bytes of a path from an offset on (to the end for None)."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A file that a snapshot names in `SSTs/` or `logs/`, and the size that it must have."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ZipMetadata:
    """What a snapshot is made of.

    Attributes:
        keys: Rows, of all column families; None where Spark did not count.
        version: What it says of its own format: 2 is only of Spark 4.0, for checkpoint format v2; else 1;
            None where it was not read.
        families: Column family -> its number in keys; empty for a store without.
        internal: Column family -> whether its rows are not counted in `keys`; empty where it does not say.
    """

    ssts: tuple[SnapshotFile, ...]
    wals: tuple[SnapshotFile, ...]
    keys: int | None
    version: int | None = None
    families: Mapping[str, int] = field(default_factory=dict)
    internal: Mapping[str, bool] = field(default_factory=dict)

    @property
    def counted_twice(self) -> tuple[str, ...]:
        """Column families of a join whose rows are counted and must not be; `SECONDARY_OF_JOINS`."""
        return tuple(
            sorted(name for name, internal in self.internal.items() if not internal and _is_secondary(name))
        )


SECONDARY_OF_JOINS = ("-keyToNumValues", "-tsWithKey")
"""Ends of names of a join's column families that only lead to its rows (state format 3 and 4).

Spark marks them as internal, and counts their rows apart (`numInternalKeys`). Its `StateRewriter` (4.3.0)
marks none, and the snapshots that a query writes from then on say the same for good: `numRowsTotal` has rows
twice.
"""


def _is_secondary(family: str) -> bool:
    return family.endswith(SECONDARY_OF_JOINS)


def with_secondary_families(data: bytes, path: str, internal_keys: int) -> bytes:
    """A snapshot of a join in which rows are counted once; its other members stay as they are.

    Raises:
        FormatError: It is not understood, or counts fewer rows than that (code `half-written`).
    """
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
            for member in old.infolist():
                content = old.read(member)
                if member.filename == "metadata":
                    content = _with_counts(content, path, internal_keys)
                new.writestr(member, content, compress_type=member.compress_type)
    except _ZIP_ERRORS as error:
        raise half_written(f"{path} is not a readable RocksDB snapshot: {error}.") from error
    return buffer.getvalue()


def _with_counts(data: bytes, path: str, internal_keys: int) -> bytes:
    first, _, rest = data.decode("utf-8").partition("\n")
    document = load_json(rest, path)
    types = document["columnFamilyTypeMap"]
    document["columnFamilyTypeMap"] = {name: bool(types[name]) or _is_secondary(name) for name in types}
    keys, before = document.get("numKeys"), document.get("numInternalKeys") or 0
    if isinstance(keys, int) and keys >= 0:  # else Spark does not count
        if internal_keys > keys + before:
            raise half_written(
                f"{path} counts {keys + before} rows, and its secondary families alone have {internal_keys}."
            )
        document["numKeys"], document["numInternalKeys"] = keys + before - internal_keys, internal_keys
    return f"{first}\n{json.dumps(document, separators=(',', ':'))}".encode()


def read_zip_metadata(path: str, size_bytes: int, read: ReadRange) -> ZipMetadata:
    """The metadata of a snapshot; only its directory and that one member are read.

    Raises:
        FormatError: `half-written` where the zip is damaged, `unknown-version` for a newer Spark's.
    """
    try:
        with zipfile.ZipFile(_Ranges(path, size_bytes, read)) as archive:
            member = archive.getinfo("metadata")
            if member.compress_type not in _WRITTEN_BY_SPARK:
                raise zipfile.BadZipFile("its metadata is compressed in a way that Spark never uses")
            with archive.open(member) as metadata:
                data = metadata.read(_MAX_METADATA_BYTES + 1)
            if len(data) > _MAX_METADATA_BYTES:
                raise zipfile.BadZipFile("its metadata is too large")
    except _ZIP_ERRORS as error:
        raise half_written(f"{path} is not a readable RocksDB snapshot: {error}.") from error
    return parse_zip_metadata(data, f"metadata in {path}")


def parse_zip_metadata(data: bytes, path: str) -> ZipMetadata:
    """The `metadata` member of a snapshot.

    Raises:
        FormatError: `half-written` or `unknown-version`.
    """
    first, _, rest = data.decode("utf-8", "replace").partition("\n")
    version = parse_version(first, path, MAX_ZIP_METADATA_VERSION)
    try:
        document = load_json(rest, path)
        keys = document.get("numKeys")
        return ZipMetadata(
            ssts=_files(document.get("sstFiles"), "dfsSstFileName"),
            wals=_files(document.get("logFiles"), "dfsLogFileName"),
            keys=keys if isinstance(keys, int) and keys >= 0 else None,
            version=version,
            families={
                str(name): int(number) for name, number in (document.get("columnFamilyMapping") or {}).items()
            },
            internal={
                str(name): value is True
                for name, value in (document.get("columnFamilyTypeMap") or {}).items()
            },
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise half_written(f"{path} is not understood: {error}.") from error


def _files(entries: Any, name_field: str) -> tuple[SnapshotFile, ...]:
    return tuple(SnapshotFile(str(entry[name_field]), int(entry["sizeBytes"])) for entry in entries or ())


class _Ranges(io.RawIOBase):
    """A seekable file over ranged reads, so that a large zip costs its end and one member only."""

    _WINDOW_BYTES = 1 << 16

    def __init__(self, path: str, size_bytes: int, read: ReadRange) -> None:
        super().__init__()
        self._path, self._size, self._read = path, size_bytes, read
        self._position = 0
        self._start, self._window = max(0, size_bytes - self._WINDOW_BYTES), b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self._size)[whence]
        if base + offset < 0:
            raise ValueError("the file is too short")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        if not self._start <= self._position < self._start + len(self._window):
            if self._position < self._start or self._window:
                self._start = self._position
            self._window = self._read(self._path, self._start, self._WINDOW_BYTES)
        offset = self._position - self._start
        data = self._window[offset : offset + wanted]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
