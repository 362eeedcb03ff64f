"""Events of a key in the order in which they happened, not in which they came.

Spark gives `handleInputRows` the rows of one batch, in any order, and a later batch may hold an earlier
event. A pattern whose answer depends on the order (a then b, five within three minutes) keeps rows until the
watermark has passed them, by an event-time timer; then nothing earlier can come, because Spark drops what is
behind the watermark. The price is latency: an answer is as late as the watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ListState, StatefulProcessor, StatefulProcessorHandle


def milliseconds(moment: datetime) -> int:
    """Since 1970, of a time as Spark hands it to Python: in local time, without a zone."""
    return round(moment.timestamp() * 1000)


def moment_of(milliseconds: int) -> datetime:
    """The opposite: a time for a column of type TIMESTAMP."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def keep(state: ListState, rows: list[tuple[Any, ...]]) -> None:
    """Let a list hold these rows and no others. Spark refuses to put an empty list."""
    if rows:
        state.put(rows)
    else:
        state.clear()


class InOrder(StatefulProcessor):
    """A processor whose `event` gets the events of a key one after the other, in order of `event_time`.

    Use it with `timeMode="EventTime"` and a watermark on `event_time`. Two events of the same moment come in
    the order of their other columns, so a batch that runs again gives the same.

    Args:
        events: The columns of the input, as `NAME TYPE, ...`, with `event_time TIMESTAMP` as the first.
    """

    def __init__(self, events: str) -> None:
        """Keep the schema; this runs in the driver, and the object is pickled to the workers."""
        self.events = events
        self.named = Row(*(column.split()[0] for column in events.split(",")))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the list of events that wait for the watermark, then the state of the pattern."""
        self.handle = handle
        self.waiting = handle.getListState("waiting", self.events)
        self.open(handle)

    def open(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variables of the pattern."""

    def event(self, key: Any, row: Row) -> Iterator[Row]:
        """Take the next event of a key; return the rows that follow from it."""
        raise NotImplementedError

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Keep the events, and set a timer for the moment of each."""
        new = [tuple(row) for row in rows]
        self.waiting.appendList(new)
        for moment in {row[0] for row in new}:
            self.handle.registerTimer(milliseconds(moment))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Hand over what the watermark has passed, once for all timers that expire in this batch."""
        passed = timerValues.getCurrentWatermarkInMs()
        waiting = [self.named(*row) for row in self.waiting.get()]
        due = sorted(row for row in waiting if milliseconds(row[0]) <= passed)
        if due:
            keep(self.waiting, [tuple(row) for row in waiting if milliseconds(row[0]) > passed])
            for row in due:
                yield from self.event(key, row)

    def close(self) -> None:
        """Nothing is held."""
