"""The small files of a checkpoint, read once and parsed once, however many batches are planned from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from streambank.checkpoint.logs import Commit, Offsets, parse_commit, parse_metadata, parse_offsets
from streambank.checkpoint.operators import OperatorMetadata, parse_operator_metadata
from streambank.checkpoint.sources import SchemaLogEntry, parse_schema_log
from streambank.checkpoint.state.changelog import (
    HEAD_BYTES,
    LineageItem,
    UnreadableLineageError,
    parse_lineage,
)
from streambank.checkpoint.state.rocksdb import ReadRange, ZipMetadata, read_zip_metadata
from streambank.checkpoint.text import empty_file, half_written
from streambank.core.errors import ConflictError, FormatError, NotFoundError
from streambank.storage import FileInfo, Store

_FIRST_HEAD_BYTES = 1 << 14
MAX_SMALL_BYTES = 1 << 26
"""A schema, or the offsets that a source began at, larger than this is not read."""
_CHUNK_BYTES = 4 << 20
MAX_ENTRY_BYTES = 1 << 24
"""Another log entry, or metadata, larger than this is not read; Spark's are some kilobytes."""

T = TypeVar("T")


class CheckpointFiles:
    """Parsed files by path; a listed file that is gone when it is read means that the checkpoint moved."""

    def __init__(self, listing: Mapping[str, FileInfo], read: ReadRange) -> None:
        self._listing = listing
        self._read = read
        self._parsed: dict[str, object] = {}

    def read(self, path: str, most_bytes: int = MAX_SMALL_BYTES) -> bytes:
        """A small file, of at most `most_bytes`.

        Raises:
            ConflictError: `checkpoint-moved`.
            FormatError: `half-written` where it is larger than any such file can be.
        """
        info = self._listing.get(path)
        if info is not None and info.size_bytes > most_bytes:
            raise _too_large(path, info.size_bytes)
        return self._range(path, 0, None)

    def chunks(self, path: str) -> Iterator[bytes]:
        """A file of any size, a range at a time, as they are asked for.

        Raises:
            ConflictError: `checkpoint-moved`.
        """
        offset = 0
        while chunk := self._range(path, offset, _CHUNK_BYTES):
            yield chunk
            offset += len(chunk)

    def query_id(self) -> str:
        if "metadata" not in self._listing:
            raise NotFoundError(
                "metadata is missing, so the query has no id.",
                code="missing-log-entry",
                hint="Spark 4.2 and newer refuse such a checkpoint; older ones give the query a new id.",
            )
        return self._once("metadata", lambda path: parse_metadata(self._entry(path), path))

    def offsets(self, path: str) -> Offsets:
        return self._once(path, lambda path: parse_offsets(self._entry(path), path))

    def commit(self, path: str) -> Commit:
        return self._once(path, lambda path: parse_commit(self._entry(path), path))

    def operator(self, path: str) -> OperatorMetadata:
        return self._once(path, lambda path: parse_operator_metadata(self._entry(path), path))

    def schema_log(self, path: str) -> SchemaLogEntry:
        return self._once(path, lambda path: parse_schema_log(self._entry(path), path))

    def zip_metadata(self, path: str) -> ZipMetadata:
        return self._once(
            path, lambda path: read_zip_metadata(path, self._listing[path].size_bytes, self._range)
        )

    def lineage(self, path: str) -> list[LineageItem]:
        return self._once(path, self._lineage)

    def _entry(self, path: str) -> bytes:
        data = self.read(path, MAX_ENTRY_BYTES)
        if not data:
            raise empty_file(path)
        return data

    def _lineage(self, path: str) -> list[LineageItem]:
        if self._listing[path].size_bytes > _FIRST_HEAD_BYTES:
            try:
                return parse_lineage(self._range(path, 0, _FIRST_HEAD_BYTES), path)
            except FormatError:
                pass  # a longer head may do; if not, the second parse raises
        return parse_lineage(self._range(path, 0, HEAD_BYTES), path)

    def _range(self, path: str, offset: int, length: int | None) -> bytes:
        try:
            return self._read(path, offset, length)
        except NotFoundError as error:
            raise ConflictError(
                f"{path} went away while the checkpoint was read.",
                code="checkpoint-moved",
                hint="The query is running and cleans up behind itself: plan again, on a newer batch.",
            ) from error

    def _once(self, path: str, parse: Callable[[str], T]) -> T:
        kept = self._parsed.get(path)
        if kept is None:
            try:
                kept = parse(path)
            except (FormatError, UnreadableLineageError) as error:
                self._parsed[path] = error
                raise
            self._parsed[path] = kept
        elif isinstance(kept, Exception):
            raise kept
        return kept  # type: ignore[return-value]  # a path is parsed as one thing only


def read_query_id(store: Store) -> str:
    """The query id in a checkpoint's `metadata`, of which no more is read than there can be.

    Raises:
        NotFoundError: It has none.
        FormatError: `half-written`.
    """
    return parse_metadata(read_entry(store, "metadata"))


def read_entry(store: Store, path: str) -> bytes:
    """An entry of the offset or commit log, or `metadata`, of which no more is read than there can be.

    Raises:
        NotFoundError: There is no such file.
        FormatError: `half-written`.
    """
    data = store.read(path, 0, MAX_ENTRY_BYTES + 1)
    if len(data) > MAX_ENTRY_BYTES:
        raise _too_large(path, f"more than {MAX_ENTRY_BYTES}")
    return data


def _too_large(path: str, size_bytes: object) -> FormatError:
    return half_written(
        f"{path} has {size_bytes} bytes, which is too large for this kind of file.",
        "The file is damaged, or another program wrote it.",
    )


class NamesOnly(CheckpointFiles):
    """Opens no state file: a snapshot counts as whole, and the commit log stands in for lineages."""

    def zip_metadata(self, path: str) -> ZipMetadata:
        return ZipMetadata((), (), None)

    def lineage(self, path: str) -> list[LineageItem]:
        raise UnreadableLineageError("not read")
