"""Which part of a source's own log belongs to a batch.

The file source logs every file it has handed out, and a batch's offset names the last entry it reads. Other
sources keep at most one file with the offsets they began at: `0` (rate, Kafka, Pulsar, Event Hubs), or
`offsets/0` (Iceberg). Anything else is refused by name, since carrying too much of an unknown log is as wrong
as carrying too little.

A Delta source that tracks schemas keeps them elsewhere below the checkpoint, in `_schema_log_<table>/<n>`,
and reads with the newest one. So an entry belongs to a batch if it is of a version of the table that the
batch's offset has reached (Delta: DeltaSourceMetadataTrackingLog).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.compactible import LogName, entries_up_to, parse_log_entry
from streambank.checkpoint.grammar import Kind, Part
from streambank.checkpoint.text import decode, half_written, load_json, parse_version
from streambank.core.errors import FormatError

_NUMBER = re.compile(r"-?[0-9]+")
MAX_SCHEMA_LOG_VERSION = 1
SOURCE_FOLDER = "/sources/"
"""Before the name of the source in the path that an entry of a schema log is bound to."""
MAX_INITIAL_VERSION = 1
"""The newest version of the offsets at which Kafka and the rate source began."""
_VERSION_LINE_BYTES = 64
Chunks = Callable[[str], Iterable[bytes]]
"""Gives the bytes of a file of a checkpoint, by its path."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """How far a source is after a batch.

    Attributes:
        kind: `file` for the file source, `initial` where only its first offsets are kept, `none` for no
            files at all.
        offset: The JSON text of its offset; None where it has read nothing yet.
    """

    source: str
    kind: str
    offset: str | None
    files: tuple[str, ...]


def cannot_repeat(source: Mapping[str, Any]) -> str | None:
    """Spark's word for a source that gives no row twice, such as `socket`; None for one that may.

    Its offsets count what this run of the query was given, so a restored query cannot read on from them.
    Without Spark's word an offset that is a bare number tells, where the source keeps no log: that of `rate`
    holds when its clock began, with which it makes the same rows again.
    """
    word, keeps_none = source.get("format"), source.get("kind") == "none"
    if isinstance(word, str) and word:
        called = word.lower()
        if called.startswith(("socket", "textsocket")):
            return "socket"
        if called.startswith("memory"):
            return "memory"
        return "rate" if keeps_none and called in ("rate", "ratestream") else None
    offset = source.get("offset")
    if keeps_none and isinstance(offset, str) and _NUMBER.fullmatch(offset.strip()):
        return "socket or memory"
    return None


def plan_sources(
    offsets: Mapping[str, str | None],
    parts: Mapping[str, Sequence[Part]],
    read: Callable[[str], bytes],
    chunks: Chunks,
) -> tuple[SourceState, ...]:
    """The part of each source's log that a batch needs.

    Raises:
        NotFoundError: `missing-log-entry`.
        FormatError: `unknown-source-log`, or `unknown-version` of the offsets that a source began at.
    """
    return tuple(_plan(name, offset, parts.get(name, ()), read, chunks) for name, offset in offsets.items())


def file_log_offset(offset: str | None, *, bare: bool = False) -> int | None:
    """The last entry of the file source's log that an offset names; None for any other source.

    Args:
        bare: Whether a number alone counts, which Spark 2.0 wrote: only a log of files beside it tells it
            from the offset of another source.
    """
    if offset is None:
        return None
    value = load_json(offset)
    if bare and isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, dict) and set(value) == {"logOffset"} and isinstance(value["logOffset"], int):
        return value["logOffset"]
    return None


def _plan(
    source: str, offset: str | None, parts: Sequence[Part], read: Callable[[str], bytes], chunks: Chunks
) -> SourceState:
    folder = f"sources/{source}"
    last = file_log_offset(offset)
    bare = file_log_offset(offset, bare=True)
    if last is None and bare is not None and _is_file_log(parts, chunks):
        last = bare
    if last is not None:
        names = [LogName(part.batch, part.compact) for part in parts if part.batch is not None]
        wanted = entries_up_to(names, last, folder) if last >= 0 else []
        return SourceState(source, "file", offset, tuple(f"{folder}/{name}" for name in wanted))
    if not parts:
        return SourceState(source, "none", offset, ())
    if offset is None and _is_file_log(parts, chunks):
        return SourceState(source, "file", None, ())
    for part in parts:
        if not _is_beginning(part):
            raise _not_understood(part, offset)
    for part in parts:
        check_initial_offsets(read(part.path), part.path)
    return SourceState(source, "initial", offset, tuple(part.path for part in parts))


def _is_beginning(part: Part) -> bool:
    if part.kind is Kind.SOURCE_LOG:
        return part.batch == 0 and not part.compact
    return part.path == f"sources/{part.source}/offsets/0"


_REASONS = {
    "shard-commit": (
        "Kinesis",
        "No savepoint of a query that reads Kinesis is possible: executors write how far they have read "
        "while a batch runs, so these files are of no batch. Let a job without state copy the stream into "
        "Kafka or files, and let the query read those.",
    ),
    "rocksdb": (
        "Auto Loader (cloudFiles)",
        "No savepoint of a query that reads with Auto Loader is possible: which files it has read stands in "
        "a database whose format is Databricks' own. Read the files with the file source of Apache Spark.",
    ),
}
"""Folder below `sources/<source>/` -> whose it is, and why no savepoint of such a query is possible."""
_SHOWN_CHARACTERS = 300


def _not_understood(part: Part, offset: str | None) -> FormatError:
    folder = part.path.split("/")[2]
    whose, hint = _REASONS.get(
        folder,
        (
            "an unknown source",
            "Known: the file source, and sources that keep only the offsets at which they began (Kafka, "
            "rate, Iceberg, ...). No savepoint of this query is possible; report the connector and its "
            "version.",
        ),
    )
    shown = "not known" if offset is None else offset
    if len(shown) > _SHOWN_CHARACTERS:
        shown = f"too long to show here ({len(shown):,} characters)"
    return FormatError(
        f"{part.path} belongs to the log of {whose}. The source's offset is {shown}.",
        code="unknown-source-log",
        hint=hint,
    )


@dataclass(frozen=True, slots=True)
class SchemaLogEntry:
    """One entry of a Delta source's schema log.

    Attributes:
        source: Name of the source in the offset log; None where the entry is bound to none.
        source_path: The path that names the source: Delta compares it with its own at each start.
    """

    table: str
    version: int
    source: str | None
    source_path: str | None


def parse_schema_log(data: bytes, path: str) -> SchemaLogEntry:
    """An entry of a Delta source's schema log.

    Raises:
        FormatError: `half-written` or `unknown-version`.
    """
    first, _, rest = decode(data, path).partition("\n")
    parse_version(first, path, MAX_SCHEMA_LOG_VERSION)
    document = load_json(rest, path)
    try:
        bound = document.get("sourceMetadataPath")
        bound = bound if isinstance(bound, str) and SOURCE_FOLDER in bound else None
        source = None if bound is None else bound.rstrip("/").rpartition(SOURCE_FOLDER)[2]
        return SchemaLogEntry(str(document["tableId"]), int(document["deltaCommitVersion"]), source, bound)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise half_written(
            f"{path} is not an entry of a Delta source's schema log: {error!r} is not as it should be."
        ) from error


def plan_schema_log(
    entries: Mapping[int, str],
    offsets: Mapping[str, str | None],
    parsed: Callable[[str], SchemaLogEntry],
    newest: bool,
) -> list[str]:
    """The entries of one schema log that belong to a batch.

    Delta writes an entry when the query has read up to the version at which the schema changed, and reads
    with the newest entry. One of a later version than the batch has reached would make it read with columns
    that were not there yet; so those are left out. The first one always belongs to it, and of a source that
    is not known all do.

    Args:
        newest: Whether the batch is the newest one: of an older one, damage behind its entries is no matter.

    Raises:
        FormatError: An entry is not understood.
    """
    wanted: list[str] = []
    kept = 0
    for _, path in sorted(entries.items()):
        try:
            entry = parsed(path)
        except FormatError:
            if newest:
                raise
            break
        wanted.append(path)
        reached = _reached(entry, offsets)
        if reached is None or entry.version <= reached or not kept:
            kept = len(wanted)
    return wanted[:kept]


def _reached(entry: SchemaLogEntry, offsets: Mapping[str, str | None]) -> int | None:
    """The version of its table that a source has reached; None where that is not known."""
    of_table: set[int] = set()
    for source, offset in offsets.items():
        value = None if offset is None else load_json(offset)
        if isinstance(value, dict) and value.get("reservoirId") == entry.table:
            version = value.get("reservoirVersion")
            if isinstance(version, int) and not isinstance(version, bool):
                if source == entry.source:
                    return version
                of_table.add(version)
    return of_table.pop() if entry.source is None and len(of_table) == 1 else None


def check_initial_offsets(data: bytes, path: str) -> None:
    """Make sure that the offsets at which Kafka or the rate source began are of a version that Spark reads.

    Kafka's begin with a zero byte. Without a version line they are Spark 2.1's, which Spark still reads. What
    another source keeps there is not judged.

    Raises:
        FormatError: They are of another version (code `unknown-version`).
    """
    first, found, rest = data.lstrip(b"\0")[:_VERSION_LINE_BYTES].partition(b"\n")
    ours = data.startswith(b"\0") or rest[:1].isdigit()
    if found and ours and first.startswith(b"v"):
        parse_version(first.decode("utf-8", "replace"), path, MAX_INITIAL_VERSION)


def _is_file_log(parts: Sequence[Part], chunks: Chunks) -> bool:
    """Whether entries are the file source's: its first batch may be logged before any batch has read it."""
    entries = [part for part in parts if part.kind is Kind.SOURCE_LOG]
    if not entries:
        return False
    try:
        _, lines = parse_log_entry(chunks(entries[0].path), entries[0].path)
        return "path" in next(lines, {}) and all("path" in line for line in lines)
    except FormatError:
        return False
