"""One file of a savepoint as its manifest lists it, and the rules its path must keep."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streambank.core.errors import IntegrityError
from streambank.repository.objects.digest import is_digest
from streambank.repository.sealed import dumps, quoted
from streambank.storage.names import is_key

NOTHING: Mapping[str, Any] = {}
"""What a mapping is where there is nothing in it; shared, never changed."""


def nothing() -> Mapping[str, Any]:
    """The empty mapping, as the default of a field."""
    return NOTHING


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a checkpoint or of a sink's log.

    Attributes:
        path: Relative to the checkpoint or the sink, with `/` between parts.
        size_bytes: Its size.
        digest: Of its bytes: `blake3:<hex>`.
        mtime_ns: Last change at its source, in nanoseconds since the epoch.
        identity: The source's token for these bytes (`FileInfo.identity`).
        role: What the file is to Spark: metadata, offsets, commits, state-snapshot, ...
        extra: Fields that a newer Streambank wrote; kept.
    """

    path: str
    size_bytes: int
    digest: str
    mtime_ns: int = 0
    identity: str = ""
    role: str = ""
    extra: Mapping[str, Any] = field(default_factory=nothing)

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON."""
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "digest": self.digest,
            "mtime_ns": self.mtime_ns,
            "identity": self.identity,
            "role": self.role,
            **self.extra,
        }

    def to_json(self) -> str:
        """`to_dict` as JSON on one line, several times as fast as the general way."""
        if self.extra:
            return dumps(self.to_dict())
        return (
            f'{{"path": {quoted(self.path)}, "size_bytes": {self.size_bytes}, '
            f'"digest": {quoted(self.digest)}, "mtime_ns": {self.mtime_ns}, '
            f'"identity": {quoted(self.identity)}, "role": {quoted(self.role)}}}'
        )

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> FileEntry:
        """The entry that `to_dict` gave.

        Raises:
            IntegrityError: A field is missing or of another type, or the path could climb out of its root.
        """
        extra = None
        if len(fields) > len(_KNOWN):
            extra = {name: value for name, value in fields.items() if name not in _KNOWN}
        try:
            entry = cls(
                path=fields["path"],
                size_bytes=fields["size_bytes"],
                digest=fields["digest"],
                mtime_ns=fields["mtime_ns"],
                identity=fields["identity"],
                role=_shared(fields["role"]),
                extra=extra or NOTHING,
            )
        except KeyError as error:
            raise _bad(f"A file of the savepoint has no field {error}.", "bad-entry") from error
        return check_entry(entry)


def _shared(role: Any) -> Any:
    """The same text as one object for all files: there are but a few roles."""
    return sys.intern(role) if type(role) is str else role


_KNOWN = frozenset({"path", "size_bytes", "digest", "mtime_ns", "identity", "role"})


def check_entry(entry: FileEntry) -> FileEntry:
    """The same entry, if each of its fields is what it should be.

    Raises:
        IntegrityError: One is not (code `bad-path` or `bad-entry`).
    """
    if not isinstance(entry.path, str) or not is_key(entry.path):
        raise _bad(f"The savepoint lists a file whose path is not allowed: {entry.path!r}.", "bad-path")
    # Spelled out, since this is done for each of perhaps a million files.
    if not (
        type(entry.size_bytes) is int
        and type(entry.mtime_ns) is int
        and entry.size_bytes >= 0
        and entry.mtime_ns >= 0
        and isinstance(entry.identity, str)
        and isinstance(entry.role, str)
        and is_digest(entry.digest)
    ):
        raise _bad(f"The savepoint's entry of the file {entry.path} is malformed.", "bad-entry")
    return entry


def sort_key(path: str) -> str:
    """What entries are sorted by: path part by path part, so that a directory's files follow each other."""
    return path.replace("/", "\0")


def in_order(entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
    """The same entries, checked to be sorted and to fit together in one directory tree.

    Raises:
        IntegrityError: A path is there twice (code `duplicate-path`), is both a file and a directory (code
            `path-clash`), or is out of order (code `bad-entry`).
    """
    before: str | None = None
    for entry in entries:
        key = sort_key(entry.path)
        if before is not None and key <= before:
            code = "duplicate-path" if key == before else "bad-entry"
            why = "listed twice" if key == before else "out of order"
            raise _bad(f"The savepoint's file {entry.path} is {why}.", code)
        if before is not None and key.startswith(before + "\0"):
            parent = before.replace("\0", "/")
            raise _bad(f"The savepoint lists {parent} both as a file and as a directory.", "path-clash")
        before = key
        yield entry


def _bad(message: str, code: str) -> IntegrityError:
    return IntegrityError(message, code=code, hint="Somebody or something changed it: use another savepoint.")
