"""Many measurements, gathered in one pass into medians of stretches of time.

Medians weigh time rather than batches: a minute with a thousand batches says no more than one with three.
Stretches begin with a second and get wider as the history gets longer, so memory stays small whatever comes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import median

from streambank.sla.growth.slope import Cell

HOUR_S = 3600
DAY_S = 86_400
_WIDTHS_S = (1, 2, 4, 12, 60, 300, 900, HOUR_S)  # each divides the next
_FEW_CELLS = 48
_MOST_CELLS = 20_000


class Gathered:
    """Medians of stretches, from measurements in the order of time."""

    def __init__(self) -> None:
        self.width_s = _WIDTHS_S[0]
        self._numbers = array("q")
        self._values = array("d")
        self._segments = array("q")
        self._open = array("d")
        self._number = 0
        self._segment = 0

    def add(self, at: datetime, value: float) -> None:
        """Take one measurement, not older than the one before."""
        second = int(at.timestamp())
        if second // self.width_s != self._number:
            self._close()
            self._number = second // self.width_s
        self._open.append(value)

    def break_here(self) -> None:
        """What comes now is not to be compared with what came before."""
        self._close()
        if self._segments:
            self._segment = self._segments[-1] + 1

    def cells(self) -> list[Cell]:
        """What was gathered, oldest first, in stretches of `width_s`."""
        self._close()
        return [Cell(*one) for one in zip(self._numbers, self._values, self._segments, strict=True)]

    def _close(self) -> None:
        if not self._open:
            return
        self._numbers.append(self._number)
        self._values.append(median(self._open) if len(self._open) > 1 else self._open[0])
        self._segments.append(self._segment)
        self._open = array("d")
        if len(self._numbers) > _MOST_CELLS and self.width_s < HOUR_S:
            wider = next(width for width in _WIDTHS_S if width > self.width_s)
            cells = widen(self.cells(), self.width_s, wider)
            self.width_s = wider
            self._numbers = array("q", (cell.number for cell in cells))
            self._values = array("d", (cell.value for cell in cells))
            self._segments = array("q", (cell.segment for cell in cells))


def width_for(cells: Sequence[Cell], width_s: int) -> int:
    """How wide cells should be for so long a time: an hour from two days on, less for less."""
    span_s = (cells[-1].number - cells[0].number + 1) * width_s
    if span_s >= 2 * DAY_S:
        return HOUR_S
    return next((wider for wider in _WIDTHS_S if wider >= width_s and span_s / wider <= _FEW_CELLS), HOUR_S)


def widen(cells: Iterable[Cell], width_s: int, wider_s: int) -> list[Cell]:
    """Medians of wider stretches; a stretch with a break in it gives one cell on each side."""
    found: list[Cell] = []
    values: list[float] = []
    key: tuple[int, int] | None = None
    for cell in cells:
        this = (cell.number * width_s // wider_s, cell.segment)
        if key is not None and this != key:
            found.append(Cell(key[0], median(values), key[1]))
            values = []
        key = this
        values.append(cell.value)
    if key is not None:
        found.append(Cell(key[0], median(values), key[1]))
    return found
