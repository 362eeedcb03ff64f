"""What an fsspec filesystem says about a file, in our words; every package spells it in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from streambank.storage.fsspec.errors import no_version_error
from streambank.storage.store import FileInfo

_VERSIONS = ("generation", "etag", "ETag")
_TIMES = ("mtime", "last_modified", "LastModified", "modified", "updated", "created")
_MILLISECONDS = "modificationTime"  # WebHDFS


def info_of(path: str, said: Mapping[str, Any], uri: str) -> FileInfo:
    """A file as a listing or a stat shows it.

    Args:
        path: Its key.
        said: What the filesystem says.
        uri: What messages name.

    Raises:
        StorageError: Nothing there tells one version of a file from another (code `no-file-version`).
    """
    size, mtime_ns = int(said.get("size") or 0), _mtime_ns(said)
    version = next((str(said[name]).strip('"') for name in _VERSIONS if said.get(name)), "")
    if not version and mtime_ns:
        version = f"{said.get('ino', '')}-{size}-{mtime_ns}"
    if not version:
        raise no_version_error(uri)
    return FileInfo(path, size, mtime_ns, version)


def _mtime_ns(said: Mapping[str, Any]) -> int:
    if isinstance(said.get(_MILLISECONDS), int):
        return int(said[_MILLISECONDS]) * 1_000_000
    value = next((said[name] for name in _TIMES if said.get(name) is not None), None)
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        since = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
    return int(value * 1_000_000_000) if isinstance(value, int | float) else 0


def below(name: str, start: str) -> str:
    """The part of a filesystem's name below a path; empty where it is not below it."""
    name, start = name.lstrip("/"), start.lstrip("/")
    return name.removeprefix(f"{start}/") if name.startswith(f"{start}/") else ""
