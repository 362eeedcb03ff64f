"""How fast a measurement grows, and when it reaches a limit: with an interval, and with its own errors shown.

The method is in `slope`: medians of pairs, from two days on only of the same hour of different days. What it
cannot know it says: with less than two days a daily wave looks like growth, with less than five the interval
is only the smallest and the largest pair. A forecast is `sure` with neither, and where, tried on the
history's own past, it was no worse than to expect no change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median
from typing import Annotated, Literal

from streambank.core.shape import JsonName, JsonObject
from streambank.core.units import number_or_none, to_json_time
from streambank.sla.growth.buckets import DAY_S, HOUR_S, Gathered, widen, width_for
from streambank.sla.growth.slope import Cell, Slope, extremes, slope

MIN_CELLS = 10
SEASONAL_DAYS = 2
SURE_DAYS = 5
_MIN_SEASONAL_PAIRS = 12
_NEWEST_SHARE = 0.25
_NEWEST_DAYS = 3
_ORIGINS = 5
_HIGH_SHARE = 0.95
_FOREVER_S = 100 * 365.25 * DAY_S

Method = Literal["plain", "seasonal", "daily"]


@dataclass(frozen=True, slots=True)
class TooLittle(JsonObject):
    """No rate can be told."""

    why: Annotated[str, JsonName("too_little")]


@dataclass(frozen=True, slots=True)
class BackTest:
    """How far forecasts were off that were made in the past of the same history.

    Attributes:
        tries: How many moments of the past it was tried at.
        horizon_s: How far ahead, the median of the tries.
        error: By how much the forecast was off, the median of the tries, in the metric's unit.
        naive_error: By how much "it stays as it is" was off.
    """

    tries: int
    horizon_s: float
    error: float
    naive_error: float

    @property
    def holds(self) -> bool:
        """Whether the forecasts were no worse than to expect no change."""
        return self.error <= self.naive_error


@dataclass(frozen=True, slots=True)
class Growth(JsonObject):
    """A rate, and the line that goes with it.

    Attributes:
        per_day: The rate, in the metric's unit a day.
        low: Lower end of its 95 % interval; None where it is open.
        level: The line at that moment.
        peak: What one in twenty of the last day's hours would be above at that moment: where there is a daily
            wave, its crest reaches a limit first.
        cells: How many medians the rate rests on.
        width_s: Each of so many seconds.
        method: `plain`: all pairs; `seasonal`: pairs of the same hour of different days; `daily`: all pairs
            of days' medians, where there are too few hours.
        sure: Whether the history is long enough to tell growth from a daily wave, and the back-test holds.
        backtest: How far forecasts in the past were off; None where the history is too short for it.
    """

    per_day: float
    low: Annotated[float | None, JsonName("per_day_low")]
    high: Annotated[float | None, JsonName("per_day_high")]
    at: datetime
    level: float
    peak: float
    span_s: float
    cells: int
    width_s: int
    method: Method
    sure: bool
    backtest: BackTest | None
    notes: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low is not None and self.low > 0

    def reach(self, limit: float) -> Reach:
        return Reach(*(_seconds(limit - self.peak, rate) for rate in (self.high, self.per_day, self.low)))


@dataclass(frozen=True, slots=True)
class Reach:
    """How long until a limit is reached; 0 where it is, None for not within a hundred years.

    Attributes:
        soonest_s: By the upper end of the rate's interval; None also where that end is open.
    """

    soonest_s: float | None
    expected_s: float | None
    latest_s: float | None


def measure_growth(gathered: Gathered, *, min_history_s: float = 0.0) -> Growth | TooLittle:
    """The growth of a measurement.

    Args:
        gathered: What was measured, with a break wherever one is known. One step that nobody named
            is found and taken as a break too.
    """
    raw = gathered.cells()
    if not raw:
        return TooLittle("Nothing was measured.")
    width = width_for(raw, gathered.width_s)
    cells = widen(raw, gathered.width_s, width)
    span_s = float((raw[-1].number - raw[0].number + 1) * gathered.width_s)
    if len(cells) < MIN_CELLS or span_s < min_history_s:
        return TooLittle(
            f"A trend needs {MIN_CELLS} stretches of time with batches in them, and at least "
            f"{min_history_s / HOUR_S:g} h; the history has {len(cells)} within {span_s / HOUR_S:.2g} h."
        )
    notes: list[str] = []
    cells = _split_at_step(cells, width, notes)
    fit = _newest_fit(cells, width)
    if fit is None:
        return TooLittle("Since its last break the history has nothing that can be compared.")
    backtest = _back_test(cells, width)
    found, per_day = fit.slope, DAY_S / fit.width
    days = _days(fit.cells, fit.width)
    if fit.method == "plain":
        notes.append("Less than two days of history: a daily wave cannot be distinguished from growth.")
    elif days < SURE_DAYS:
        notes.append(f"It rests on {days} days; {SURE_DAYS} are needed for an interval that can be trusted.")
    if fit.newer:
        notes.append("It grows faster than before: the rate is that of the newest part.")
    if found.low > 0 and backtest is not None and not backtest.holds:
        notes.append("On its own past the forecast was worse than a forecast of no change.")
    level, peak = _line(fit)
    return Growth(
        per_day=found.value * per_day,
        low=number_or_none(found.low * per_day),
        high=number_or_none(found.high * per_day),
        at=datetime.fromtimestamp((raw[-1].number + 1) * gathered.width_s, UTC),
        level=level,
        peak=peak,
        span_s=span_s,
        cells=len(fit.cells),
        width_s=fit.width,
        method=fit.method,
        sure=fit.method != "plain" and days >= SURE_DAYS and backtest is not None and backtest.holds,
        backtest=backtest,
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Fit:
    slope: Slope
    cells: Sequence[Cell]
    width: int
    method: Method
    newer: bool = False


def _split_at_step(cells: list[Cell], width: int, notes: list[str]) -> list[Cell]:
    """One step in the whole history (a compaction, a backfill) is a break; several are how it always is."""
    if len({cell.segment for cell in cells}) > 1:
        return cells
    position = only_step(cells)
    if position is None:
        return cells
    moment = datetime.fromtimestamp(cells[position].number * width, UTC)
    notes.append(f"A step at {to_json_time(moment)} is left out of the rate.")
    return [
        Cell(cell.number, cell.value, cell.segment + (index >= position)) for index, cell in enumerate(cells)
    ]


def _newest_fit(cells: Sequence[Cell], width: int) -> _Fit | None:
    """The fit of all cells, or of the newest quarter, three days at least, where that certainly grows faster.

    The median of all pairs is so robust that a leak which has just begun is an outlier to it.
    """
    whole = _fit(cells, width)
    last, span = cells[-1].number, cells[-1].number - cells[0].number + 1
    newest = max(_NEWEST_SHARE * span, _NEWEST_DAYS * DAY_S / width)
    fit = _fit([cell for cell in cells if cell.number > last - newest], width)
    if whole is None or fit is None or fit.method != whole.method:
        return whole
    return replace(fit, newer=True) if fit.slope.low > max(0.0, whole.slope.value) else whole


def _fit(cells: Sequence[Cell], width: int) -> _Fit | None:
    days = _days(cells, width)
    if days < SEASONAL_DAYS:
        plain = slope(cells)
        return None if plain is None else _Fit(plain, cells, width, "plain")
    period = DAY_S // width
    seasonal = slope(cells, period) if days >= SURE_DAYS else extremes(cells, period)
    if seasonal is not None and seasonal.pairs >= _MIN_SEASONAL_PAIRS:
        return _Fit(seasonal, cells, width, "seasonal")
    daily = widen(cells, width, DAY_S)
    found = slope(daily)
    return None if found is None else _Fit(found, daily, DAY_S, "daily")


def _days(cells: Sequence[Cell], width: int) -> int:
    """Whole days; an hour may be missing at the last."""
    return int(((cells[-1].number - cells[0].number + 1) * width + HOUR_S) // DAY_S) if cells else 0


def _line(fit: _Fit) -> tuple[float, float]:
    """Where the line and its crest are at the newest cell: by the last day, or quarter of a short history."""
    last = fit.cells[-1]
    recent = max(4, len(fit.cells) // 4) if fit.method == "plain" else DAY_S // fit.width
    rest = sorted(
        cell.value - fit.slope.value * (cell.number - last.number)
        for cell in fit.cells
        if cell.segment == last.segment and cell.number > last.number - recent
    )
    return median(rest), rest[math.ceil(_HIGH_SHARE * len(rest)) - 1]


def _back_test(cells: Sequence[Cell], width: int) -> BackTest | None:
    """Forecasts of the newest day (or eighth of a short history) from up to five moments of the past."""
    seasonal = _days(cells, width) > SEASONAL_DAYS
    stretch = DAY_S // width if seasonal else max(3, len(cells) // 8)
    begin = cells[-1].number + 1 - stretch
    target = [cell for cell in cells if cell.number >= begin]
    before = [cell for cell in cells if cell.number < begin]
    if len({cell.segment for cell in target}) != 1:
        return None
    actual = median(cell.value for cell in target)
    middle = sum(cell.number for cell in target) / len(target)
    errors: list[float] = []
    naive: list[float] = []
    horizons: list[float] = []
    for step in range(_ORIGINS):
        past = before[: len(before) - step * len(before) // (2 * _ORIGINS)]
        if len(past) < MIN_CELLS or past[-1].segment != target[0].segment:
            continue
        fit = _newest_fit(past, width)
        if fit is None or fit.width != width:
            continue
        level, _ = _line(fit)
        ahead = middle - past[-1].number
        recent = [cell.value for cell in past if cell.number > past[-1].number - stretch]
        errors.append(abs(level + fit.slope.value * ahead - actual))
        naive.append(abs(median(recent) - actual))
        horizons.append(ahead * width)
    if not errors:
        return None
    return BackTest(len(errors), median(horizons), median(errors), median(naive))


def _seconds(distance: float, per_day: float | None) -> float | None:
    if distance <= 0:
        return 0.0
    if per_day is None or per_day <= 0:
        return None
    seconds = distance / per_day * DAY_S
    return seconds if seconds < _FOREVER_S else None


_SIDE = 3
_TIMES_USUAL = 8.0
_SHARE = 0.2


def only_step(cells: Sequence[Cell]) -> int | None:
    """The position at which a new level begins, if there is one such step and no other.

    A step is where the medians of three cells before and after differ by a fifth of the level, and by eight
    times what they usually do, and where all is quiet again afterwards: growth that gets faster and faster
    is none. Several are a habit, such as a nightly purge or RocksDB's own compactions: to leave those out
    would turn their teeth into growth.
    """
    values = [cell.value for cell in cells]
    sides = {
        position: (median(values[position - _SIDE : position]), median(values[position : position + _SIDE]))
        for position in range(_SIDE, len(values) - _SIDE + 1)
    }
    if not sides:
        return None
    usual = median(abs(after - before) for before, after in sides.values())
    large = [
        position
        for position, (before, after) in sides.items()
        if abs(after - before) > max(_TIMES_USUAL * usual, _SHARE * max(abs(before), abs(after)))
    ]
    upwards = {sides[position][1] > sides[position][0] for position in large}
    if len(upwards) != 1 or large[-1] - large[0] >= 2 * _SIDE or large[-1] == max(sides):
        return None
    return max(large, key=lambda position: abs(values[position] - values[position - 1]))
