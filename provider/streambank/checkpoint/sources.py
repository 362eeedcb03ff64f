"""Which part of a source's own log belongs to a batch.

The file source logs every file it has handed out, and a batch's offset names the last entry it reads. Other
sources keep at most one file, `0`, with the offsets they began at (rate, Kafka). Anything else is refused by
name, since carrying too much of an unknown log is as wrong as carrying too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.checkpoint.compactible import LogName, entries_up_to, parse_log_entry
from streambank.checkpoint.grammar import Kind, Part
from streambank.checkpoint.text import load_json, parse_version
from streambank.core.errors import FormatError

_NUMBER = re.compile(r"-?[0-9]+")
MAX_INITIAL_VERSION = 1
"""The newest version of the offsets at which Kafka and the rate source began."""
_VERSION_LINE_BYTES = 64
Chunks = Callable[[str], Iterable[bytes]]
"""Gives the bytes of a file of a checkpoint, by its path."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """How far a source is after a batch.

    Attributes:
        source: Its name in the offset log: an index, or an id in version 2.
        kind: `file` for the file source, `initial` where only its first offsets are kept, `none` for no
            files at all.
        offset: The JSON text of its offset; None where it has read nothing yet.
        files: Paths of its log that belong to the batch.
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

    Args:
        source: A source as a savepoint keeps it: `kind`, `offset`, and in `format` Spark's word where that is
            known.
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

    Args:
        offsets: Source -> offset of the batch.
        parts: Source -> files below `sources/<source>/`.
        read: Reads a small file.
        chunks: Reads a file of any size, in chunks.

    Raises:
        NotFoundError: `missing-log-entry`.
        FormatError: `unknown-source-log`, or `unknown-version` of the offsets that a source began at.
    """
    return tuple(_plan(name, offset, parts.get(name, ()), read, chunks) for name, offset in offsets.items())


def file_log_offset(offset: str | None, *, bare: bool = False) -> int | None:
    """The last entry of the file source's log that an offset names; None for any other source.

    Args:
        offset: The JSON text of the offset.
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
        if part.kind is not Kind.SOURCE_LOG or part.batch != 0 or part.compact:
            raise FormatError(
                f"{part.path} belongs to the log of an unknown source, whose offset is {str(offset)[:60]}.",
                code="unknown-source-log",
                hint="Known: the file source, and sources that keep only their first offsets (Kafka, rate).",
            )
    for part in parts:
        check_initial_offsets(read(part.path), part.path)
    return SourceState(source, "initial", offset, tuple(part.path for part in parts))


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
