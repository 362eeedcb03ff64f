"""Beginning a new output directory in the middle of a query's life: a log that says nothing up to batch N.

A query that resumes at batch N + 1 in an empty directory writes `_spark_metadata/<N + 1>` and knows no batch
before. Spark 4.3.0 does not go on from there (measured): every reader of the output fails at once
(FileNotFoundException of `_spark_metadata/0`, or of the last `<k>.compact`), and the query itself stops with
BATCH_METADATA_NOT_FOUND at the next batch that compacts the log, or at its next start. It goes on where each
entry that it will look for is there, even if it names no file.

So a new output gets the entries that the savepoint keeps of the old one, under the same names and empty.
The same names, because Spark derives the interval of compaction from the newest compacted one: an invented
`<N>.compact` would have it compact every batch, or not for thousands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nsmallest

from streambank.checkpoint.compactible import MAX_VERSION, LogName, format_log_entry
from streambank.core.shape import JsonObject
from streambank.sinks.file.log import log_key
from streambank.sinks.file.position import SavedLog
from streambank.sinks.table import sink_moved
from streambank.storage.store import FileInfo, Store

DEFAULT_COMPACT_INTERVAL = 10
"""Spark's `spark.sql.streaming.fileSink.log.compactInterval`."""

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class NewOutput(JsonObject):
    """An output directory that was begun.

    Attributes:
        instead_of: Where it wrote before; the rows up to `batch` stay there.
        batch: The batch up to which the new log says nothing.
    """

    path: str
    instead_of: str
    batch: int
    log_written: tuple[str, ...]


def empty_log(saved: SavedLog) -> dict[LogName, bytes]:
    """The log of a new output: it reaches the savepoint's batch, and names no file."""
    names = sorted(saved.content)
    if not names[0].compact and names[0].batch > 0:
        # The old output was itself begun in the middle, without what Spark needs.
        compacted = (saved.batch + 1) // DEFAULT_COMPACT_INTERVAL * DEFAULT_COMPACT_INTERVAL - 1
        names = [LogName(compacted, compact=True)] if compacted >= 0 else []
        names += [LogName(batch) for batch in range(compacted + 1, saved.batch + 1)]
    return {name: b"".join(format_log_entry(MAX_VERSION, [])) for name in names}


def in_the_way(saved: SavedLog, store: Store) -> tuple[str, ...]:
    """The first files that keep a directory from being a new output; what an earlier try wrote does not."""
    begun = {log_key(name): data for name, data in empty_log(saved).items()}
    others = (info.path for info in store.list() if info.path not in begun or not _is(store, info, begun))
    return tuple(nsmallest(_MOST_NAMED, others))


def _is(store: Store, info: FileInfo, begun: Mapping[str, bytes]) -> bool:
    data = begun[info.path]
    return info.size_bytes == len(data) and store.read(info.path) == data


def begin_output(saved: SavedLog, store: Store, instead_of: str) -> NewOutput:
    """Write the log of a new output; nothing may write there meanwhile.

    Raises:
        ConflictError: `sink-moved`: something else is in the directory now.
        StorageError: The environment failed; the same call goes on where this one stopped.
    """
    log = empty_log(saved)
    for name in sorted(log):
        if not store.exists(log_key(name)):
            store.write(log_key(name), log[name], exclusive=True)
    if others := in_the_way(saved, store):
        raise sink_moved(
            f"Something else writes to the new output directory {store.uri}: {others[0]} is there now.",
            "Stop whatever writes to it, then restore again, into another directory.",
        )
    return NewOutput(store.uri, instead_of, saved.batch, tuple(str(name) for name in sorted(log)))
