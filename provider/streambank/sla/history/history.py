"""The history of a query from its progress records: streamed file by file, however long it is.

Files are looked at from the newest backwards until one begins before the time that is asked for; only those
are read, one at a time, oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from streambank.control.progress import (
    ProgressRecord,
    SegmentHead,
    Succession,
    last_of_segment,
    progress_keys,
    segment_head,
)
from streambank.core.errors import NotFoundError
from streambank.core.names import MAIN
from streambank.sla.history.clock_order import TimedFiles, read_each
from streambank.sla.history.point import History, Point
from streambank.sla.history.progress_json import Measuring
from streambank.storage import open_store
from streambank.storage.segments import is_segment
from streambank.storage.store import Store

_BEFORE_WINDOW = 2
"""So many files in a row must begin before the window, so that one odd line cannot end the look back."""


@dataclass(frozen=True, slots=True)
class Records:
    """Files of progress records."""

    store: Store
    keys: Sequence[str]
    query: str = MAIN

    @classmethod
    def of_query(cls, store: Store, query: str | None = None) -> Records:
        """Those of a query among a job's records."""
        return cls(store, progress_keys(store, query), query or MAIN)

    @classmethod
    def at(cls, location: str) -> Records:
        """Those at a location: one file, or a folder of them (`<control>/<job>/progress/<query>`).

        Raises:
            NotFoundError: There are none (code `no-history`).
        """
        place, _, name = location.rstrip("/").rpartition("/")
        if name.endswith(".jsonl"):
            store = open_store(place or ".")
            keys = [name] if store.exists(name) else []
            query = name.removesuffix(".jsonl")
        else:
            store = open_store(location)
            keys = [name for name in store.names() if is_segment(name)]
            query = name
        if not keys:
            raise NotFoundError(
                f"There are no progress records at {location}.",
                code="no-history",
                hint="Name a folder <control>/<job>/progress/<query>, with main for a job's only query, or a "
                "file in it.",
            )
        return cls(store, keys, query)

    def newest(self) -> ProgressRecord | None:
        """The newest record that can be read; None for none."""
        for key in reversed(self.keys):
            record = last_of_segment(self.store, key)
            if record is not None:
                return record
        return None


class HistoryScan:
    """The points of one query, oldest first, with one file in memory, or eight small ones of a service.

    Safe while a driver writes.

    The counts are of the files that were read, which begin before `since`. They are complete when the
    iteration is, and begin again with the next.
    """

    def __init__(
        self, records: Records, *, since: datetime | None = None, until: datetime | None = None
    ) -> None:
        self._records = records
        self._since, self._until = since, until
        self._reset()

    def _reset(self) -> None:
        self.runs = self.lost = self.duplicates = self.damaged = self.torn = self.jumps = self.stale = 0

    def __iter__(self) -> Iterator[Point]:
        self._reset()
        succession, measuring = Succession(), Measuring()
        run: str | None = None
        files = TimedFiles(self._records.store, file_heads(self._records, self._since))
        for _, _, record, at in files:
            self.damaged, self.torn = files.damaged, files.torn
            self.jumps, self.stale = files.jumps, files.stale
            new = succession.takes(record)
            self.lost, self.duplicates = succession.lost, succession.duplicates
            if not new:
                continue
            point = measuring.point(record, at)
            if (self._since is None or at >= self._since) and (self._until is None or at <= self._until):
                if run != record.run_id:
                    run = record.run_id
                    self.runs += 1
                yield point
        self.damaged, self.torn, self.jumps, self.stale = files.damaged, files.torn, files.jumps, files.stale

    def notes(self) -> tuple[str, ...]:
        """What was odd, in sentences."""
        told = (
            (self.lost, "{} lost: batches without a progress record, between others that have one."),
            (self.damaged, "{} damaged: lines that cannot be read."),
            (self.torn, "{} torn: files that end in half a line: a driver was killed, or is writing."),
            (self.duplicates, "{} duplicates: records that occur twice."),
            (self.jumps, "{} clock jumps: times that went back, and were put in order."),
            (self.stale, "{} stale: records of a driver that had lost its lease to another, left out."),
        )
        return tuple(sentence.format(number) for number, sentence in told if number)


class Scan(Protocol):
    """Points that are read as they are gone through."""

    def __iter__(self) -> Iterator[Point]:
        """They, oldest first."""

    @property
    def runs(self) -> int:
        """Of how many runs they were, the last time."""

    def notes(self) -> tuple[str, ...]:
        """What was odd, the last time."""


class StreamedHistory(History):
    """A history whose points are read whenever they are gone through, and never held.

    `runs` and `notes` are those of the last time that they were gone through to the end.
    """

    __slots__ = ("_scan",)
    _scan: Scan

    def __init__(self, query: str, scan: Scan) -> None:
        object.__setattr__(self, "query", query)
        object.__setattr__(self, "points", scan)
        object.__setattr__(self, "_scan", scan)

    @property
    def runs(self) -> int:
        return self._scan.runs

    @property
    def notes(self) -> tuple[str, ...]:
        return self._scan.notes()


class _Through:
    def __init__(self, history: History, each: Callable[[Iterable[Point]], Iterator[Point]]) -> None:
        self._history = history
        self._each = each

    @property
    def runs(self) -> int:
        return self._history.runs

    def notes(self) -> tuple[str, ...]:
        return self._history.notes

    def __iter__(self) -> Iterator[Point]:
        return self._each(self._history.points)


def passed_through(history: History, each: Callable[[Iterable[Point]], Iterator[Point]]) -> StreamedHistory:
    """A history whose points are those that a generator makes of the points of another, each time anew."""
    return StreamedHistory(history.query, _Through(history, each))


def file_heads(records: Records, since: datetime | None = None) -> list[tuple[str, SegmentHead | None]]:
    """The files of a window and how they begin, oldest first, found from the newest backwards.

    Args:
        since: Where the window begins; one or two files before it are among them. None for all.
    """
    found: list[tuple[str, SegmentHead | None]] = []
    older = 0
    newest_first = records.keys[::-1]
    heads = read_each(segment_head, records.store, newest_first)
    for key, head in zip(newest_first, heads, strict=True):
        found.append((key, head))
        if head is not None and since is not None:
            older = older + 1 if head.at < since else 0
            if older == _BEFORE_WINDOW:
                break
    return found[::-1]
