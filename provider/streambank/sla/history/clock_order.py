"""Which records of a history count, and in which order: clocks go back, and drivers outlive their lease.

Of times that should never go back, those on a longest run of non-decreasing ones are trusted. The others were
stamped by a clock that was wrong for a while, ahead or behind, and get the time of the trusted one before.

How the first line of a file begins is enough to know when a driver was replaced and where a clock went back
(docs/formats/progress.md). So a stretch of files can be read by itself (`TimedFiles`), as long as the
beginnings of all of them are known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import TypeVar

from streambank.control.progress import ProgressRecord, SegmentHead, read_segment
from streambank.storage.store import Store
from streambank.storage.threads import at_once, each

Stamped = ProgressRecord | SegmentHead
"""What tells whose a record is, and when it was written down."""


class Drivers:
    """Who drove the query when: a record of a driver that was replaced by then is stale.

    A driver that stood still while another took its lease may go on until its next heartbeat and write on.
    Its own file was begun before the other's, so records in that are stale which are both later and of no
    earlier a batch than the other's first: a restore alone goes back to earlier batches, and a clock that is
    behind alone makes earlier ones look later. Files that it begins afterwards are stale as long as the
    other is seen to write too; where it is not, epochs were counted again.

    Args:
        heads: How each file begins, in the order in which they were begun; None where nobody knows.
    """

    def __init__(self, heads: Sequence[SegmentHead | None]) -> None:
        self._seen: dict[int, datetime] = {}
        self._late: list[bool] = []
        highest = -1
        for head in heads:
            self._late.append(head is not None and head.epoch < highest)
            if head is not None:
                highest = max(highest, head.epoch)
                self.saw(head)
        self._successor: list[SegmentHead | None] = [None] * len(heads)
        coming: list[SegmentHead] = []
        for place in range(len(heads) - 1, -1, -1):
            head = heads[place]
            if head is not None:
                while coming and coming[-1].epoch <= head.epoch:
                    coming.pop()
                self._successor[place] = coming[-1] if coming else None
                coming.append(head)

    def saw(self, record: Stamped) -> None:
        self._seen[record.epoch] = max(record.at, self._seen.get(record.epoch, record.at))

    def began_late(self, place: int) -> bool:
        """Whether a file was begun by a driver after another one had taken its lease."""
        return self._late[place]

    def is_stale(self, place: int, record: Stamped) -> bool:
        """Whether a record does not count."""
        if self._late[place]:
            return any(epoch > record.epoch and at >= record.at for epoch, at in self._seen.items())
        successor = self._successor[place]
        return successor is not None and record.at >= successor.at and record.batch >= successor.batch


def trusted(times: Sequence[datetime]) -> list[int]:
    """Places of a longest non-decreasing run of times, ascending; of two such runs, one over less time.

    So of few times, a single one that is far off is not trusted, whichever way it is off.
    """
    seconds = [moment.timestamp() for moment in times]
    last = len(times) - 1
    runs = [
        _longest(seconds),
        [last - place for place in reversed(_longest([-second for second in reversed(seconds)]))],
    ]
    return min(runs, key=lambda run: seconds[run[-1]] - seconds[run[0]] if run else 0.0)


def _longest(values: Sequence[float]) -> list[int]:
    """Places of the longest non-decreasing run whose values are the smallest (patience sorting)."""
    ends: list[float] = []
    places: list[int] = []
    before: list[int | None] = []
    for place, value in enumerate(values):
        length = bisect_right(ends, value)
        before.append(places[length - 1] if length else None)
        if length == len(ends):
            ends.append(value)
            places.append(place)
        else:
            ends[length], places[length] = value, place
    found: list[int] = []
    step = places[-1] if places else None
    while step is not None:
        found.append(step)
        step = before[step]
    return found[::-1]


def in_order(times: Sequence[datetime], low: datetime | None, high: datetime | None) -> list[datetime]:
    """Times that do not go back, as little changed as can be, between one before and one after."""
    inside = [
        place
        for place, moment in enumerate(times)
        if (low is None or moment >= low) and (high is None or moment <= high)
    ]
    chosen = [times[place] for place in inside]
    if len(inside) == len(times) and all(one <= two for one, two in pairwise(chosen)):
        return chosen
    keep = {inside[place] for place in trusted(chosen)}
    first = min(keep, default=None)
    last = low
    if last is None:
        last = high if first is None else times[first]
    found = []
    for place, moment in enumerate(times):
        if place in keep or last is None:
            last = moment
        found.append(last)
    return found


def next_trusted(begins: Sequence[datetime | None]) -> list[datetime | None]:
    """For each file, when the next one begins whose begin is trusted; None where none follows."""
    known = [(place, moment) for place, moment in enumerate(begins) if moment is not None]
    keep = {known[row][0] for row in trusted([moment for _, moment in known])}
    found: list[datetime | None] = [None] * len(begins)
    coming: datetime | None = None
    for place in range(len(begins) - 1, -1, -1):
        found[place] = coming
        if place in keep:
            coming = begins[place]
    return found


T = TypeVar("T")

Heads = Sequence[tuple[str, SegmentHead | None]]
"""Keys of files, oldest first, and how each of them begins; None where nobody knows."""


class TimedFiles:
    """The records of some files, with one file in memory, or eight small ones of a service.

    Args:
        end: The place after the last one; None for all.
        counted_from: What is odd counts from this place on; those before are read for what they lead to.

    Attributes:
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
