"""A long history in little time: hours that are over as one point each, and only the newest batch by batch.

A record takes 0.1 ms to read, and a trend looks two weeks back: of a query with a batch a second, that would
be 1.2 million records at each judgement. Hours that are over do not change, so they are kept beside the
records (`hour_files`). With what is kept and without it a history has the same points, as long as the records
are there; where they have been rolled away, the hours still tell.

An hour is over, for this, when no objective looks at its single batches any more, and the newest record is
later: a driver that could not write for a while brings its records late, but in their order. Hours are made
again from where a file begins that came later than they did and is of an earlier time (a clock that went
back), and from the first one that is missing. Kept hours that are not over, as after the clock of whoever
judges went back, are thrown away with the rest of their days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from streambank.control.progress import segment_head
from streambank.core.errors import StreambankError
from streambank.declaration.objectives import DAY_S, HOUR_S
from streambank.sla.history.history import HistoryScan, Records, StreamedHistory
from streambank.sla.history.hour import HourOfRun, hour_of
from streambank.sla.history.hour_files import DAY_HOURS, HourFiles, KeptHours
from streambank.sla.history.point import Point

WHOLE_H = 12
"""A history of no more hours is read batch by batch: its trend rests on stretches shorter than an hour."""
_LOOKED_BACK = 2
"""So many windows back, for when it began that batches are bad."""
_SLACK_S = 2 * DAY_S


@dataclass(frozen=True, slots=True)
class Windows:
    """How far back a history is looked at: while single batches count, and while hours do."""

    now: datetime
    statistic_s: float
    trend_s: float

    @property
    def single_s(self) -> float:
        """How far back single batches are needed."""
        return _LOOKED_BACK * self.statistic_s

    @property
    def begin(self) -> datetime:
        return self.now - timedelta(seconds=max(self.trend_s, self.single_s))


class HourlyScan:
    """The points of one query, oldest first: hours, kept if `keep`, then batches. Counts are of last time."""

    def __init__(
        self, records: Records, windows: Windows, files: HourFiles | None = None, *, keep: bool = True
    ) -> None:
        self._records = records
        self._windows = windows
        self._files = files
        self._keep = keep and files is not None
        self._notes: tuple[str, ...] = ()
        self._run: str | None = None
        self.runs = 0

    def notes(self) -> tuple[str, ...]:
        """What was odd in the records that were read."""
        return self._notes

    def __iter__(self) -> Iterator[Point]:
        self.runs, self._run, self._notes = 0, None, ()
        for point in self._points():
            if self.runs == 0 or point.run_id != self._run:
                self._run = point.run_id
                self.runs += 1
            yield point

    def _points(self) -> Iterator[Point]:
        begin, newest = hour_of(self._windows.begin), self._records.newest()
        if newest is None:
            return
        kept = self._kept(begin, newest.at)
        first = max(begin, self._oldest())
        over = self._over(newest.at)
        if min(hour for hour in (first, *kept.hours) if hour >= begin) > hour_of(newest.at) - WHOLE_H:
            kept, over = KeptHours(), min(over, begin)
        again = next((hour for hour in range(first, over) if hour not in kept.hours), over)
        for hour in sorted(kept.hours):
            if begin <= hour < again:
                yield from kept.hours[hour]
        scan = HistoryScan(self._records, since=datetime.fromtimestamp(again * HOUR_S, UTC))
        made: dict[int, list[Point]] = {hour: [] for hour in range(again, over)}
        gathering: HourOfRun | None = HourOfRun()
        for point in scan:
            if gathering is not None and hour_of(point.at) >= over:
                yield from _put(made, gathering.close())
                gathering = None
                self._write(kept, made, again)
            if gathering is None:
                yield point
            else:
                yield from _put(made, gathering.take(point))
        if gathering is not None:
            yield from _put(made, gathering.close())
            self._write(kept, made, again)
        self._notes = (*scan.notes(), *self._notes)

    def _over(self, newest: datetime) -> int:
        """The first hour of which every batch is needed."""
        return hour_of(min(self._windows.now - timedelta(seconds=self._windows.single_s), newest))

    def _oldest(self) -> int:
        """The hour in which the records begin."""
        head = self._first_head()
        return hour_of(head) if head is not None else hour_of(self._windows.now)

    def _first_head(self) -> datetime | None:
        heads = (segment_head(self._records.store, key) for key in self._records.keys)
        return next((head.at for head in heads if head is not None), None)

    def _kept(self, begin: int, newest: datetime) -> KeptHours:
        if self._files is None:
            return KeptHours()
        over = self._over(newest)
        kept = self._files.read(begin)
        if self._keep and max(kept.hours, default=over - 1) >= over:
            self._try(lambda files: files.drop_from(over))
        good = min(over, self._first_late(kept))
        return KeptHours({hour: points for hour, points in kept.hours.items() if hour < good}, kept.files)

    def _first_late(self, kept: KeptHours) -> int:
        """The hour in which the earliest file begins that was not there when hours were made."""
        late = max(kept.hours, default=0) + 1
        for key in reversed(self._records.keys if kept.hours else ()):
            if _number(key) <= kept.files:
                break
            head = segment_head(self._records.store, key)
            if head is not None:
                late = min(late, hour_of(head.at))
        return late

    def _write(self, kept: KeptHours, made: Mapping[int, Sequence[Point]], again: int) -> None:
        if not self._keep or not made:
            return
        day = again // DAY_HOURS
        whole = {
            hour: points for hour, points in kept.hours.items() if day <= hour // DAY_HOURS and hour < again
        }
        oldest = self._windows.now - timedelta(seconds=self._windows.trend_s + _SLACK_S)
        self._try(lambda files: files.write({**whole, **made}, _number(self._records.keys[-1])))
        self._try(lambda files: files.drop_before(hour_of(oldest)))

    def _try(self, act: Callable[[HourFiles], None]) -> None:
        """Change what is kept; where that fails a note says so, since nothing but time is lost."""
        try:
            if self._files is not None:
                act(self._files)
        except StreambankError as error:
            self._notes = (
                f"Its hourly values could not be kept, and are made again each time: {error.message}",
            )


def hourly_history(
    records: Records, windows: Windows, files: HourFiles | None = None, *, keep: bool = True
) -> StreamedHistory:
    """A query's history for whoever judges it: hours, and then batches. Nothing is read before it is used."""
    return StreamedHistory(records.query, HourlyScan(records, windows, files, keep=keep))


def _put(made: dict[int, list[Point]], points: Iterator[Point]) -> Iterator[Point]:
    for point in points:
        made.setdefault(hour_of(point.at), []).append(point)
        yield point


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].partition(".")[0])
