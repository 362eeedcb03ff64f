"""The log that compacts itself, which the file source and the file sink share.

Entry `<k>` holds what batch k added, one JSON object a line below the version; every so often `<k>.compact`
holds everything up to k, and the entries before it are deleted some time later. The file source keeps it in
`sources/<i>/`, the file sink in `<output>/_spark_metadata/` (Spark: CompactibleFileStreamLog).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from streambank.checkpoint.position import is_batch
from streambank.checkpoint.text import decode, half_written, load_json, parse_version
from streambank.core.errors import NotFoundError
from streambank.core.lines import whole_lines

MAX_VERSION = 1
"""The newest version of entries of both logs that is understood."""
LONGEST_LINE_BYTES = 1 << 20
"""Of a line, which names one file: paths have some hundred bytes."""
_LINES_AT_ONCE = 1000

_NAME = re.compile(r"(0|[1-9][0-9]{0,18})(\.compact)?\Z")


@dataclass(frozen=True, slots=True, order=True)
class LogName:
    """The name of one entry: of a sink its batch, of a source its own count; `compact` holds all before."""

    batch: int
    compact: bool = False

    def __str__(self) -> str:
        return f"{self.batch}.compact" if self.compact else str(self.batch)


def parse_log_name(name: str) -> LogName | None:
    """The entry that a file name stands for; None for temporary files, checksums and anything else."""
    found = _NAME.match(name)
    return LogName(int(found[1]), found[2] is not None) if found and is_batch(found[1]) else None


def parse_log_entry(chunks: Iterable[bytes], path: str = "log entry") -> tuple[int, Iterator[dict[str, Any]]]:
    """Version and JSON objects of an entry, read as they are asked for; an entry that added nothing has none.

    A compacted entry names every file that a query ever read or wrote, so it is never in memory as a whole.

    Raises:
        FormatError: `half-written` where the bytes are no entry, `unknown-version` for a newer one; where
            the objects are at fault, the iterator raises it.
    """
    lines = _lines(chunks, path)
    version = parse_version(decode(next(lines, b""), path), path, MAX_VERSION)
    return version, _objects(lines, path)


def _lines(chunks: Iterable[bytes], path: str) -> Iterator[bytes]:
    try:
        for block in whole_lines(chunks, LONGEST_LINE_BYTES):
            yield from block.removesuffix(b"\n").split(b"\n")
    except ValueError as error:
        raise half_written(f"{path} is damaged: {error}.") from error


def _objects(lines: Iterable[bytes], path: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        where = f"line {number} of {path}"
        entry = load_json(decode(line, where), where)
        if not isinstance(entry, dict):
            raise half_written(f"Line {number} of {path} is not a JSON object.")
        yield entry


def format_log_entry(version: int, entries: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """An entry as Spark writes it, in chunks: no line end after the last line, compact JSON."""
    lines, left = [f"v{version}"], iter(entries)
    while some := list(islice(left, _LINES_AT_ONCE)):
        lines += [json.dumps(entry, separators=(",", ":"), ensure_ascii=False) for entry in some]
        yield "\n".join(lines).encode("utf-8")
        lines = [""]
    if lines != [""]:
        yield "\n".join(lines).encode("utf-8")


def entries_up_to(names: Iterable[LogName], batch: int, where: str, *, start: int = 0) -> list[LogName]:
    """The entries that together tell everything up to `batch`: the last compacted one, then one by one.

    Args:
        where: How to name the log in an error, such as `sources/0`.
        start: The first entry that a log without any compaction must have; batches of a sink may begin later.

    Raises:
        NotFoundError: `missing-log-entry`, naming the first that is not there.
    """
    there = {name for name in names if name.batch <= batch}
    wanted: list[LogName] = []
    for number in range(batch, start - 1, -1):
        if (compacted := LogName(number, compact=True)) in there:
            wanted.append(compacted)
            break
        if (single := LogName(number)) not in there:
            raise NotFoundError(
                f"{where}/{single} is missing, and so is {compacted}; the log is needed up to entry {batch}.",
                code="missing-log-entry",
                hint="Entries go away when the log is compacted: take a newer batch, or it is damaged.",
            )
        wanted.append(single)
    return wanted[::-1]
