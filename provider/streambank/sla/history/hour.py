"""An hour of a run as one point: the median of each metric, with its smallest and largest value."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from statistics import median

from streambank.declaration.objectives import HOUR_S
from streambank.sla.history.point import Point, Stretch


def hour_of(moment: datetime) -> int:
    """The hour that a moment is in, counted from 1970 on."""
    return int(moment.timestamp() // HOUR_S)


class HourOfRun:
    """Points of one hour of one run, to be given as one."""

    def __init__(self) -> None:
        self._first: Point | None = None
        self._last: Point | None = None
        self._count = 0
        self._columns: dict[tuple[int | None, str], array[float]] = {}

    def take(self, point: Point) -> Iterator[Point]:
        """Take a point; gives the hour before where that is over."""
        last = self._last
        if last is not None and (last.run_id != point.run_id or hour_of(last.at) != hour_of(point.at)):
            yield from self.close()
        self._first = self._first or point
        self._last = point
        self._count += 1
        for name, value in point.values.items():
            self._columns.setdefault((None, name), array("d")).append(value)
        for operator, values in point.operators.items():
            for name, value in values.items():
                self._columns.setdefault((operator, name), array("d")).append(value)

    def close(self) -> Iterator[Point]:
        """The hour so far: medians, with the rest of its last point."""
        first, last = self._first, self._last
        if first is None or last is None:
            return
        stretch = Stretch(self._count, first.at, first.batch, self._point(last, min), self._point(last, max))
        whole = replace(self._point(last, median), stretch=stretch)
        self._first = self._last = None
        self._count, self._columns = 0, {}
        yield whole

    def _point(self, last: Point, figure: Callable[[array[float]], float]) -> Point:
        values: dict[str, float] = {}
        operators: dict[int, dict[str, float]] = {}
        for (operator, name), column in self._columns.items():
            target = values if operator is None else operators.setdefault(operator, {})
            target[name] = figure(column)
        return replace(last, values=values, operators=operators)
