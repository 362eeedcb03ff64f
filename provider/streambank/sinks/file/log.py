"""The file sink's log: `<output>/_spark_metadata/<batch>` and `<batch>.compact`.

Each entry lists the data files of a batch by absolute URI. Spark skips a batch whose id is not above the
newest entry, in silence, and readers of the output take the data files from this log alone. Entries carry
no batch id, so once an entry has been compacted nobody can tell any more which batch wrote a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard
from urllib.parse import quote, unquote

from streambank.checkpoint.compactible import (
    LogName,
    entries_up_to,
    format_log_entry,
    parse_log_entry,
    parse_log_name,
)
from streambank.core.errors import FormatError
from streambank.storage.names import is_key
from streambank.storage.store import FileInfo, Store, chunks

LOG_DIRECTORY = "_spark_metadata"
"""Where the file sink keeps its log, below the output directory."""

_LONG = 1 << 63
"""Spark keeps a size as a Java long."""
_SAME_SERVICE = {"s3a": "s3", "s3n": "s3"}
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<host>[^/]*))?(?P<path>/.*|)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that the log names, with size and time (ms since 1970); without key it lies outside."""

    uri: str
    key: str | None
    size_bytes: int
    written_ms: int | None = None

    @property
    def name(self) -> str:
        """Its key, or its URI where it lies outside of the output directory."""
        return self.uri if self.key is None else self.key


class Roots:
    """The output directory under every spelling of entries: where it is, and where it was before."""

    def __init__(self, *locations: str) -> None:
        self._roots = tuple(dict.fromkeys(_split(location) for location in locations))

    def key(self, uri: str) -> str | None:
        """The path of a data file relative to the output directory; None where it lies outside.

        The log spells it as Java spells a URI, percent-encoded.
        """
        scheme, host, path = _split(uri)
        if "://" in uri or uri.startswith("file:"):
            path = unquote(path)
        for root_scheme, root_host, root_path in self._roots:
            if (scheme, host) != (root_scheme, root_host):
                continue
            found = _below(path, root_path)
            if found is None and scheme == "file":
                found = _below(os.path.realpath(path), os.path.realpath(root_path))
            if found is not None and is_key(found):
                return found
        return None


def _split(uri: str) -> tuple[str, str, str]:
    """Scheme, host and path as it is spelled; a path without a scheme is a local file."""
    found = _URI.match(uri)
    if found is None:
        return "file", "", uri.rstrip("/") or "/"
    scheme = found["scheme"].lower()
    return _SAME_SERVICE.get(scheme, scheme), found["host"] or "", found["path"].rstrip("/") or "/"


def _below(path: str, root: str) -> str | None:
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) and len(path) > len(prefix) else None


def chain(names: Iterable[LogName], batch: int, where: str) -> list[LogName]:
    """Names of the entries that tell everything up to `batch`; the first batch of a sink need not be 0.

    A log that was ever compacted tells nothing by its first entry: Spark deletes old ones by their age, so
    some may be left of those that a compaction has replaced.

    Raises:
        NotFoundError: `missing-log-entry`: one of them is not there any more.
    """
    every = list(names)
    there = [name for name in every if name.batch <= batch]
    compacted = any(name.compact for name in every)
    start = 0 if compacted else min((name.batch for name in there), default=0)
    return entries_up_to(there, batch, where, start=start)


def list_log(store: Store) -> dict[LogName, FileInfo]:
    """The entries of the log of an output directory; empty where there is none."""
    found = {}
    for info in store.list(LOG_DIRECTORY):
        folder, _, name = info.path.rpartition("/")
        parsed = parse_log_name(name)
        if folder == LOG_DIRECTORY and parsed is not None:
            found[parsed] = info
    return found


def log_key(name: LogName) -> str:
    """Where an entry lies below the output directory."""
    return f"{LOG_DIRECTORY}/{name}"


def read_entry(store: Store, name: LogName, roots: Roots) -> Iterator[DataFile]:
    """The data files that one entry of an output directory's log names, as `parse_entry` gives them.

    Raises:
        NotFoundError: It went away.
    """
    with store.open(log_key(name)) as reader:
        yield from parse_entry(chunks(reader), log_key(name), roots)


def parse_entry(content: Iterable[bytes], path: str, roots: Roots) -> Iterator[DataFile]:
    """The data files that one entry names, read as they are asked for.

    Raises:
        FormatError: It is no entry of a file sink's log, or it does something other than adding files.
    """
    _, objects = parse_log_entry(content, path)
    for entry in objects:
        yield _data_file(entry, path, roots)


def _data_file(entry: Mapping[str, Any], path: str, roots: Roots) -> DataFile:
    uri, size, action = entry.get("path"), entry.get("size"), entry.get("action", "add")
    if not isinstance(uri, str) or not uri or not _is_long(size):
        raise FormatError(
            f"{path} has a line without the path or the size of a data file.",
            code="half-written",
            hint="The file is damaged, or is not the log of a file sink.",
        )
    if action != "add":
        raise FormatError(
            f"{path} has the action {action!r} for {uri}; only the action 'add' is known.",
            code="unknown-sink-action",
            hint="Report the Spark version that wrote it.",
        )
    written = entry.get("modificationTime")
    return DataFile(
        uri=uri, key=roots.key(uri), size_bytes=size, written_ms=written if _is_long(written) else None
    )


def _is_long(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and -_LONG <= value < _LONG


def relocate_entry(data: Iterable[bytes], path: str, old: Roots, new_uri: str) -> Iterator[bytes]:
    """The same entry whose URIs of data files below the old output directory point below the new one."""
    version, objects = parse_log_entry(data, path)

    def moved(entry: dict[str, Any]) -> dict[str, Any]:
        key = old.key(str(entry.get("path", "")))
        return entry if key is None else {**entry, "path": _join(new_uri, key)}

    yield from format_log_entry(version, map(moved, objects))


def without_files(
    data: Iterable[bytes], path: str, roots: Roots, left_out: Container[str]
) -> Iterator[bytes]:
    """The same entry without some data files, which are called by `DataFile.name`."""
    version, objects = parse_log_entry(data, path)
    kept = (one for one in objects if _data_file(one, path, roots).name not in left_out)
    yield from format_log_entry(version, kept)


def _join(root_uri: str, key: str) -> str:
    # Spark writes Path.toUri, which leaves these characters as they are and encodes the rest.
    scheme, _, rest = root_uri.rstrip("/").partition("://")
    return f"{scheme}://{quote(f'{rest}/{key}', safe=_JAVA_PATH_CHARACTERS)}"


_JAVA_PATH_CHARACTERS = "/;:@&=+$,-_.!~*'()"
