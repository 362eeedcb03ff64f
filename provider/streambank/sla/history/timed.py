"""Progress records that count, oldest first, each with the time that does: of all files, or of a stretch.

What is told of a file before it is read is how its first line begins, and that is enough to know when a
driver was replaced and where a clock went back (docs/formats/progress.md). So a stretch of files can be read
by itself, as long as the beginnings of all of them are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

from streambank.control.progress import ProgressRecord, SegmentHead, read_segment
from streambank.sla.history.clock_order import Drivers, in_order, next_trusted
from streambank.storage.store import Store
from streambank.storage.threads import at_once, each

T = TypeVar("T")

Heads = Sequence[tuple[str, SegmentHead | None]]
"""Keys of files, oldest first, and how each of them begins; None where nobody knows."""


class TimedFiles:
    """The records of some files, with one file in memory, or eight small ones of a service.

    Args:
        store: Where they are.
        heads: All files that matter.
        begin: The place of the first one that is read.
        end: The place after the last one; None for all.
        counted_from: What is odd counts from this place on; those before are read for what they lead to.

    Attributes:
        damaged: Lines that cannot be read.
        torn: Files that end in half a line.
        jumps: How often the clock went back.
        stale: Records left out since their driver had lost its lease.
        readable: How many records each file has, by its place.
    """

    def __init__(
        self, store: Store, heads: Heads, *, begin: int = 0, end: int | None = None, counted_from: int = 0
    ) -> None:
        self._store = store
        self._heads = heads
        self._places = range(begin, len(heads) if end is None else end)
        self._counted_from = counted_from
        self.damaged = self.torn = self.jumps = self.stale = 0
        self.readable: dict[int, int] = {}

    def __iter__(self) -> Iterator[tuple[int, int, ProgressRecord, datetime]]:
        """Place of the file, number of the record in it, the record, and the time that counts."""
        drivers = Drivers([head for _, head in self._heads])
        begins = [
            None if head is None or drivers.began_late(place) else head.at
            for place, (_, head) in enumerate(self._heads)
        ]
        ends = next_trusted(begins)
        last: datetime | None = None
        before: datetime | None = None
        keys = [self._heads[place][0] for place in self._places]
        for place, segment in zip(self._places, read_each(read_segment, self._store, keys), strict=True):
            if segment is None:  # rolled away while we read
                continue
            counts = place >= self._counted_from
            found = list(enumerate(segment.records))
            records = [(number, one) for number, one in found if not drivers.is_stale(place, one)]
            self.readable[place] = len(found)
            if counts:
                self.torn += segment.torn
                self.damaged += segment.damaged
                self.stale += len(found) - len(records)
            for _, record in records:
                self.jumps += counts and before is not None and record.at < before
                before = record.at
                drivers.saw(record)
            times = in_order([record.at for _, record in records], last, ends[place])
            if times:
                last = times[-1]
            for (number, record), at in zip(records, times, strict=True):
                yield place, number, record, at


def read_each(read: Callable[[Store, str], T], store: Store, keys: Sequence[str]) -> Iterator[T]:
    """What reading gives for each key, in their order; of a service a few are read ahead at the same time."""
    parallel = at_once(store) if store.features.remote else 1
    for begin in range(0, len(keys), parallel):
        yield from each(partial(read, store), keys[begin : begin + parallel], parallel)
