"""Spark's own checksums: visible `<name>.crc` files with the CRC-32C and the size of the file beside them.

Spark 4.1 and later write them; without this check a file that was damaged before it was saved would be
found only when Spark refuses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from streambank.core.errors import IntegrityError
from streambank.repository.entry import FileEntry
from streambank.repository.repository import Repository
from streambank.savepoint.crc32c import crc32c_of_chunks

_SUFFIX = ".crc"


def disagreements(repository: Repository, entries: Mapping[str, FileEntry]) -> Iterator[tuple[str, str]]:
    """Files that are not what Spark's checksums say, each with what was seen.

    Args:
        repository: Where the bytes are.
        entries: Files of a savepoint whose objects are whole, by path.
    """
    for path, checksum in entries.items():
        main = entries.get(path.removesuffix(_SUFFIX)) if path.endswith(_SUFFIX) else None
        if main is None or path.rpartition("/")[2].startswith("."):
            continue
        try:
            expected = _parse(repository.read_object(checksum.digest))
        except ValueError as error:
            yield path, f"{path} is no checksum as Spark writes them: {error}."
            continue
        if expected is None:
            continue
        value, size_bytes = expected
        try:
            found = crc32c_of_chunks(repository.object_chunks(main.digest))
        except IntegrityError as error:
            yield main.path, error.message
            continue
        if size_bytes != main.size_bytes:
            yield main.path, f"{main.path} has {main.size_bytes} bytes, and {path} says {size_bytes}."
        elif found != value:
            yield main.path, f"{main.path} has the CRC-32C {found:08x}, and {path} says {value:08x}."


def _parse(data: bytes) -> tuple[int, int] | None:
    """CRC-32C and size that a checksum file names; None for an algorithm that is not known."""
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    if fields.get("algorithm") != "CRC32C":
        return None
    value, size_bytes = fields.get("value"), fields.get("mainFileSize")
    if not isinstance(value, int) or not isinstance(size_bytes, int):
        raise ValueError("it names no value or no size")
    return value & 0xFFFFFFFF, size_bytes  # Java writes a signed integer
