"""All progress records of a query, as tests look at what drivers leave behind."""

from __future__ import annotations

from collections.abc import Iterator

from streambank.control.progress import ProgressRecord, Succession, read_segment
from streambank.core.names import MAIN
from streambank.storage.segments import segment_key, segment_numbers
from streambank.storage.store import Store


class ProgressScan:
    """The records of one query, oldest first, each batch of a run once. Safe while a driver writes.

    Attributes:
        duplicates: Lines dropped since that batch of that run was seen before.
        lost: Batches of which no record is there, between records that are: within a run, and between the end
            of one and the beginning of the next. Batches before the first record kept are not lost but
            expired.
        damaged: Whole lines that cannot be read.
        torn: Files that end in half a line: what a driver that was killed, or is just writing, leaves.

    The counts are complete when the iteration is.
    """

    def __init__(self, store: Store, query: str | None = None) -> None:
        self._store = store
        self._prefix = f"progress/{query or MAIN}"
        self._reset()

    def _reset(self) -> None:
        self.duplicates = self.lost = self.damaged = self.torn = 0

    def __iter__(self) -> Iterator[ProgressRecord]:
        self._reset()
        succession = Succession()
        for record in self._records():
            new = succession.takes(record)
            self.duplicates, self.lost = succession.duplicates, succession.lost
            if new:
                yield record

    def _records(self) -> Iterator[ProgressRecord]:
        for number in segment_numbers(self._store, self._prefix):
            segment = read_segment(self._store, segment_key(self._prefix, number))
            if segment is not None:
                self.torn += segment.torn
                self.damaged += segment.damaged
                yield from segment.records
