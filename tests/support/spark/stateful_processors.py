"""Stateful processors of the transformWithState queries: a value, a list, and an event-time timer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

QUIET_MS = 12_000
"""How long after its newest event a key is closed."""


class Visits(StatefulProcessor):
    """Counts the rows of a key and remembers its newest ids, until a timer closes it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.rows = handle.getValueState("rows", "rows long")
        self.newest = handle.getListState("newest", "id long")

    def _count(self) -> int:
        found = self.rows.get() if self.rows.exists() else None
        return int(found[0]) if found is not None else 0

    def _add(self, ids: list[int], newest_ms: int, watermark_ms: int) -> tuple[int, int]:
        rows = self._count() + len(ids)
        self.rows.update((rows,))
        kept = sorted([int(row[0]) for row in self.newest.get()] + ids)[-3:]
        self.newest.put([(each,) for each in kept])
        for timer_ms in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer_ms)
        self.handle.registerTimer(max(newest_ms, watermark_ms) + QUIET_MS)
        return rows, kept[-1]

    def _close(self) -> tuple[int, int]:
        rows, newest = self._count(), max(int(row[0]) for row in self.newest.get())
        self.rows.clear()
        self.newest.clear()
        return rows, newest

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        given = list(rows)
        newest_ms = max(int(row["at"].timestamp() * 1000) for row in given)
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        count, newest = self._add([int(row["id"]) for row in given], newest_ms, watermark_ms)
        yield Row(key=key[0], rows=count, newest=newest, closed=False)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        count, newest = self._close()
        yield Row(key=key[0], rows=count, newest=newest, closed=True)

    def close(self) -> None:
        """Nothing is held."""


class PandasVisits(Visits):
    """The same, a DataFrame at a time."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd

        pieces = list(rows)
        ids = [int(each) for piece in pieces for each in piece["id"]]
        newest_ms = max(int(piece["at"].max().timestamp() * 1000) for piece in pieces)
        count, newest = self._add(ids, newest_ms, timerValues.getCurrentWatermarkInMs())
        yield pd.DataFrame({"key": [key[0]], "rows": [count], "newest": [newest], "closed": [False]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        import pandas as pd

        count, newest = self._close()
        yield pd.DataFrame({"key": [key[0]], "rows": [count], "newest": [newest], "closed": [True]})


class Kept(StatefulProcessor):
    """Counts the rows of a key in a value that expires after a day, and in one that does not."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept = handle.getValueState("kept", "rows long", 86_400_000)
        self.ever = handle.getValueState("ever", "rows long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        found = self.kept.get() if self.kept.exists() else None
        count = (int(found[0]) if found is not None else 0) + len(list(rows))
        self.kept.update((count,))
        self.ever.update((count,))
        yield Row(key=key[0], rows=count)

    def close(self) -> None:
        """Nothing is held."""
