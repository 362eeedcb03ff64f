"""Many points in little memory: a column of numbers for each metric; a `Point` is made when asked for."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import overload

from streambank.sla.history.point import Point

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NONE = -1
_NO_TIME = -(1 << 62)


class Points(Sequence[Point]):
    """A sequence of points that takes about a tenth of the memory that the points themselves would."""

    def __init__(self) -> None:
        self._at = array("q")
        self._watermark = array("q")
        self._batch = array("q")
        self._epoch = array("q")
        self._run = array("l")
        self._runs: dict[str, int] = {}
        self._run_ids: list[str] = []
        self._columns: dict[tuple[int | None, str], array[float]] = {}

    def append(self, point: Point) -> None:
        """Take the next point, not older than the last."""
        before = len(self._at)
        self._at.append(_microseconds(point.at))
        self._watermark.append(_NO_TIME if point.watermark is None else _microseconds(point.watermark))
        self._batch.append(point.batch)
        self._epoch.append(_NONE if point.epoch is None else point.epoch)
        self._run.append(_NONE if point.run_id is None else self._run_number(point.run_id))
        for name, value in point.values.items():
            self._put(None, name, value, before)
        for operator, values in point.operators.items():
            for name, value in values.items():
                self._put(operator, name, value, before)

    def series(self, metric: str, operator: int | None = None) -> Iterator[tuple[datetime, float]]:
        """Times and values of one metric, where it is known.

        Args:
            metric: Its name.
            operator: Of one operator; None for the value over all.
        """
        for at, value in zip(self._at, self._columns.get((operator, metric), ()), strict=False):
            if not math.isnan(value):
                yield _EPOCH + at * _MICROSECOND, value

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, index: int) -> Point: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Point, ...]: ...

    def __getitem__(self, index: int | slice) -> Point | tuple[Point, ...]:
        if isinstance(index, slice):
            return tuple(self._point(row) for row in range(*index.indices(len(self))))
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(index)
        return self._point(row)

    def __iter__(self) -> Iterator[Point]:
        return map(self._point, range(len(self)))

    def _point(self, row: int) -> Point:
        values: dict[str, float] = {}
        operators: dict[int, dict[str, float]] = {}
        for (operator, name), column in self._columns.items():
            if row < len(column) and not math.isnan(value := column[row]):
                target = values if operator is None else operators.setdefault(operator, {})
                target[name] = value
        watermark, epoch, run = self._watermark[row], self._epoch[row], self._run[row]
        return Point(
            _EPOCH + self._at[row] * _MICROSECOND,
            self._batch[row],
            None if run == _NONE else self._run_ids[run],
            None if epoch == _NONE else epoch,
            values,
            operators,
            None if watermark == _NO_TIME else _EPOCH + watermark * _MICROSECOND,
        )

    def _put(self, operator: int | None, name: str, value: float, row: int) -> None:
        column = self._columns.get((operator, name))
        if column is None:
            column = self._columns[operator, name] = array("d")
        if len(column) < row:
            column.extend([math.nan] * (row - len(column)))
        column.append(value)

    def _run_number(self, run_id: str) -> int:
        number = self._runs.get(run_id)
        if number is None:
            number = self._runs[run_id] = len(self._run_ids)
            self._run_ids.append(run_id)
        return number


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
