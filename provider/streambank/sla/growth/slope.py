"""How fast something grows, by estimators that outliers, restarts and daily waves do not mislead. Pure.

* Slope: the median of the slopes of all pairs (Theil 1950, Sen 1968). 29 % of the values may be anything.
* With a season, only values of the same hour of different days are paired: the seasonal Kendall slope of
  Hirsch, Slack and Smith (1982), for which a wave that comes every day is no trend at all.
* Interval: Sen's, from the variance of Kendall's S. What was measured one hour after the other is no
  independent evidence, which would make it far too narrow: with a season the variance is widened by what
  the hours have in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

Z95 = 1.959964
"""Two-sided 95 %."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The median of what was measured in one stretch of time.

    Attributes:
        number: The stretch, counted in its width from 1970 on.
        segment: Values before and after a break (a compaction, a restore) are of different segments and are
            never compared.
    """

    number: int
    value: float
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Slope:
    """A slope per stretch.

    Attributes:
        low: Lower end of its 95 % interval; minus infinity where too few pairs tell.
    """

    value: float
    low: float
    high: float
    pairs: int


def slope(cells: Sequence[Cell], period: int | None = None) -> Slope | None:
    """The slope of some cells in the order of time; None where no pair can be compared.

    Args:
        period: Only cells that are a multiple of so many stretches apart are compared; None for all.
    """
    groups = _groups(cells, period)
    slopes = _slopes(groups)
    if not slopes:
        return None
    variance = _variance(groups)
    if period is not None:
        variance += _covariances(groups, period)
    low, high = _interval(slopes, max(0.0, variance))
    return Slope(median(slopes), low, high, len(slopes))


def extremes(cells: Sequence[Cell], period: int) -> Slope | None:
    """The slope with its smallest and largest pair as the interval, where days are too few for another."""
    slopes = _slopes(_groups(cells, period))
    return Slope(median(slopes), slopes[0], slopes[-1], len(slopes)) if slopes else None


def _groups(cells: Sequence[Cell], period: int | None) -> list[list[Cell]]:
    """Cells that may be compared: of one segment, and of one season."""
    groups: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        season = 0 if period is None else cell.number % period
        groups.setdefault((cell.segment, season), []).append(cell)
    return [group for group in groups.values() if len(group) > 1]


def _slopes(groups: Sequence[Sequence[Cell]]) -> list[float]:
    return sorted(
        (later.value - earlier.value) / (later.number - earlier.number)
        for group in groups
        for earlier, later in combinations(group, 2)
    )


def _variance(groups: Sequence[Sequence[Cell]]) -> float:
    """Variance of Kendall's S without a trend, for ties corrected, each group by itself."""
    total = 0.0
    for group in groups:
        size = len(group)
        total += size * (size - 1) * (2 * size + 5)
        counts: dict[float, int] = {}
        for cell in group:
            counts[cell.value] = counts.get(cell.value, 0) + 1
        total -= sum(ties * (ties - 1) * (2 * ties + 5) for ties in counts.values() if ties > 1)
    return total / 18


def _covariances(groups: Sequence[Sequence[Cell]], period: int) -> float:
    """What the seasons have in common: an hour is like the one before.

    The sum over all pairs of seasons of their correlation times the variance of one. The correlation is how
    often both change alike from a day to another, of n (n - 1) / 2 pairs of days; the variance is
    n (n - 1) (2 n + 5) / 18. Squares of sums, without each season's own square, do for pairs of seasons.
    """
    by_segment: dict[int, list[dict[int, float]]] = {}
    for group in groups:
        column = {cell.number // period: cell.value for cell in group}
        by_segment.setdefault(group[0].segment, []).append(column)
    total = 0.0
    for columns in by_segment.values():
        days = sorted({day for column in columns for day in column})
        alike = 0
        for earlier, later in combinations(days, 2):
            signs = [
                _sign(column[later] - column[earlier])
                for column in columns
                if earlier in column and later in column
            ]
            alike += sum(signs) ** 2 - sum(map(abs, signs))
        total += alike * (2 * len(days) + 5) / 9
    return total


def _interval(slopes: Sequence[float], variance: float) -> tuple[float, float]:
    """Sen's interval (Gilbert 1987, section 16.4.2), rounded outwards."""
    width = Z95 * math.sqrt(variance)
    low = math.floor((len(slopes) - width) / 2) - 1
    high = math.ceil((len(slopes) + width) / 2)
    return (
        slopes[low] if low >= 0 else -math.inf,
        slopes[high] if high < len(slopes) else math.inf,
    )


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
