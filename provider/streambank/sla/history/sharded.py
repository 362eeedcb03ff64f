"""A long history in portions: stretches of files, measured side by side, with the figures of one pass.

What a batch's figures owe to batches before it is little: when the last one ended, the time that counted for
it, and with which batch the run began. So each portion begins to read some files before its own, and is told
where the run of the first record there began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from streambank.control.progress import SegmentHead, Succession, read_segment
from streambank.sla.history.clock_order import Heads, TimedFiles, trusted
from streambank.sla.history.history import Records
from streambank.sla.history.point import Point
from streambank.sla.history.progress_json import Measuring
from streambank.storage.store import Store

PORTION_BYTES = 128_000_000
"""How much of a history makes a portion: some seconds of work for one core."""
_WARM_UP_FILES = 3
"""So many files are read before a portion's own; more where drivers wrote too long, or clocks were wrong."""


@dataclass(frozen=True, slots=True)
class Portion:
    """A stretch of a query's files, by their places in the list of heads.

    Attributes:
        reads_from: Where reading begins.
        begin: Its first own file.
        end: The place after its last one.
        run_id: The run of the first record that is read; None where nobody knows.
        began: The first batch of that run.
    """

    reads_from: int
    begin: int
    end: int
    run_id: str | None = None
    began: int = 0


def portions(
    records: Records,
    heads: Heads,
    *,
    began: Mapping[str, int] | None = None,
    portion_bytes: int = PORTION_BYTES,
) -> list[Portion]:
    """Cut a history into portions.

    Args:
        records: The files.
        heads: Those of interest, and how they begin (`file_heads`).
        began: The first batch of runs that began before these files, as far as known.
        portion_bytes: How much one holds; a file is never cut.
    """
    if not heads:
        return []
    folder = heads[0][0].rpartition("/")[0]
    sizes = {info.path: info.size_bytes for info in records.store.list(folder)}
    cuts, size = [0], 0
    for place, (key, _) in enumerate(heads):
        if size and size + sizes.get(key, 0) > portion_bytes:
            cuts.append(place)
            size = 0
        size += sizes.get(key, 0)
    known = dict(began or {})
    found = []
    for begin, end in zip(cuts, [*cuts[1:], len(heads)], strict=True):
        reads_from = _reads_from(heads, begin)
        head = heads[reads_from][1]
        run_id = head.run_id if head is not None else None
        if run_id is not None and run_id not in known:
            known[run_id] = _began(records.store, heads, run_id)
        found.append(Portion(reads_from, begin, end, run_id, known[run_id] if run_id is not None else 0))
    return found


def _reads_from(heads: Heads, begin: int) -> int:
    """The place of a file by a driver that held the lease, which begins with a time that is trusted."""
    highest = -1
    sound: list[tuple[int, datetime]] = []
    for place, (_, head) in enumerate(heads):
        if head is not None and head.epoch >= highest:
            highest = head.epoch
            sound.append((place, head.at))
    places = (sound[row][0] for row in trusted([moment for _, moment in sound]))
    return max((place for place in places if place <= begin - _WARM_UP_FILES), default=0)


def _began(store: Store, heads: Heads, run_id: str) -> int:
    """The first batch of a run: at the beginning of a file, or in the one that its driver wrote before."""
    known: list[SegmentHead | None] = [head for _, head in heads]
    first = next(place for place, head in enumerate(known) if head is not None and head.run_id == run_id)
    begin = known[first]
    assert begin is not None
    for place in range(first - 1, -1, -1):
        head = known[place]
        if head is not None and head.epoch == begin.epoch:
            segment = read_segment(store, heads[place][0])
            batches = [one.batch for one in segment.records if one.run_id == run_id] if segment else []
            return batches[0] if batches else begin.batch
    return begin.batch


class PortionScan:
    """The points of a portion's own files, oldest first.

    Args:
        store: Where the files are.
        heads: All of them, and how they begin.
        portion: Which are read.

    Attributes:
        lost, duplicates: As those of `HistoryScan`, of the own files.
        files: What the files say: see `TimedFiles`.
        runs: The first batch that was seen of each run.
    """

    def __init__(self, store: Store, heads: Heads, portion: Portion) -> None:
        self._portion = portion
        self.files = TimedFiles(
            store, heads, begin=portion.reads_from, end=portion.end, counted_from=portion.begin
        )
        self.lost = self.duplicates = 0
        self.runs: dict[str, int] = {}

    def __iter__(self) -> Iterator[tuple[int, int, Point]]:
        """Place of the file, number of the record in it, and the point."""
        portion = self._portion
        succession, measuring = Succession(), Measuring(portion.run_id, portion.began)
        for place, number, record, at in self.files:
            lost, duplicates = succession.lost, succession.duplicates
            new = succession.takes(record)
            own = place >= portion.begin
            if own:
                self.lost += succession.lost - lost
                self.duplicates += succession.duplicates - duplicates
            if new:
                point = measuring.point(record, at)
                if own:
                    self.runs.setdefault(record.run_id, measuring.run_began)
                    yield place, number, point


def seen_before(heads: Heads, place: int, number: int, seen: Mapping[str, int]) -> bool:
    """Whether a record was there when somebody counted the records of each file.

    Args:
        heads: The files.
        place: Its file.
        number: Which record of the file it is.
        seen: What was counted, by key: of the newest files only, older ones are complete.
    """
    key = heads[place][0]
    return bool(seen) and (number < seen[key] if key in seen else key < min(seen))
