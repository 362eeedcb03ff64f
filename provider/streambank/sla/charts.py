"""What is drawn of a query: each measurement over time with its limits, its restarts and its forecast.

Data only; who draws it decides how. Long histories are drawn as medians of stretches, between the smallest
and the largest value of each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from streambank.declaration.objectives import PROMISES, Unit
from streambank.declaration.sla import SlaPolicy
from streambank.sla.growth.forecast import Growth
from streambank.sla.history.point import History, Point
from streambank.sla.judge.trends import TrendGauge
from streambank.sla.judge.windows import values_of
from streambank.sla.objectives import Objective, objectives
from streambank.sla.verdict import Level

MOST_POINTS = 1000
_AHEAD = 0.5
_MOST_AHEAD = 4.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A value at a time: of one batch, or the median of some."""

    at: datetime
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The crest of a measurement as it goes on by its rate; `low` is None where the interval is open."""

    begin: datetime
    end: datetime
    value: float
    expected: float
    low: float | None
    high: float | None
    grows: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """One measurement of a query.

    Attributes:
        subject: What of the query: an operator or metric; empty for all of it.
        dots: Its values, by time; no dot stands for values of two runs, as far back as `restarts` goes.
        level: The level of its newest value alone, whatever the window.
    """

    query: str
    objective: str
    subject: str
    meaning: str
    unit: Unit
    dots: Sequence[Dot]
    newest: Dot
    warn: float | None
    breach: float | None
    level: Level
    restarts: Sequence[datetime]
    forecast: Forecast | None

    @property
    def name(self) -> str:
        """For a heading: `state_rows of operator 0`."""
        return f"{self.objective} of {self.subject}" if self.subject else self.objective


@dataclass(slots=True)
class _Drawn:
    objective: Objective
    subject: str
    dots: list[Dot] = field(default_factory=list)


def charts_of(
    history: History,
    policy: SlaPolicy | None,
    now: datetime,
    *,
    breaks: Sequence[datetime] = (),
) -> list[Chart]:
    """Charts of a query, in the order of the objectives."""
    judged = {one.name: one for one in objectives(policy)}
    shown = _shown(judged, policy)
    sizes = [one for one in shown if one.name in PROMISES["time_to_limit"].metrics]
    trend = judged.get("time_to_limit") or judged.get("growth") or _unlimited("time_to_limit")
    gauge = TrendGauge(trend, sizes, now, breaks)
    drawn: dict[tuple[str, str], _Drawn] = {}
    restarts: list[datetime] = []
    run: str | None = None
    for point in history.points:
        if run is not None and point.run_id != run:
            restarts.append(point.at if point.stretch is None else point.stretch.began)
        run = point.run_id
        gauge.add(point)
        for objective in shown:
            _take(drawn, objective, point)
    growths = gauge.growths()
    order = list(PROMISES)
    return [
        _chart(history.query, one, restarts, growths.get(key), now)
        for key, one in sorted(drawn.items(), key=lambda each: (order.index(each[0][0]), each[0][1]))
    ]


def _shown(judged: Mapping[str, Objective], policy: SlaPolicy | None) -> list[Objective]:
    """What is measured batch by batch: with its limits, or without; not what was switched off."""
    declared = policy.objectives if policy is not None else {}
    shown = []
    for name, promise in PROMISES.items():
        off = name in declared and declared[name].off
        if promise.kind == "window" and not off:
            shown.append(judged.get(name) or _unlimited(name))
    return shown


def _unlimited(name: str) -> Objective:
    promise = PROMISES[name]
    return Objective(name, promise, None, None, promise.window_s, promise.statistic)


def _take(drawn: dict[tuple[str, str], _Drawn], objective: Objective, point: Point) -> None:
    stretch = point.stretch
    lows = highs = dict(values_of(objective, point))
    values = highs
    if stretch is not None:
        lows, highs = (dict(values_of(objective, one)) for one in (stretch.lowest, stretch.highest))
    for subject, value in values.items():
        one = drawn.setdefault((objective.name, subject), _Drawn(objective, subject))
        one.dots.append(Dot(point.at, value, lows[subject], highs[subject]))


def _chart(
    query: str, one: _Drawn, restarts: Sequence[datetime], growth: Growth | None, now: datetime
) -> Chart:
    objective, newest = one.objective, one.dots[-1]
    since = [moment for moment in restarts if moment >= one.dots[0].at]
    return Chart(
        query=query,
        objective=objective.name,
        subject=one.subject,
        meaning=objective.promise.meaning,
        unit=objective.promise.unit,
        dots=thinned(one.dots, restarts=since),
        newest=newest,
        warn=objective.warn,
        breach=objective.breach,
        level=objective.level_of(newest.value),
        restarts=since,
        forecast=None if growth is None else _forecast(growth, objective.size_limit),
    )


def _forecast(growth: Growth, limit: float | None) -> Forecast:
    """Half as far ahead as the history goes back, or until the limit is reached where that is not too far."""
    ahead_s = _AHEAD * growth.span_s
    reach_s = growth.reach(limit).expected_s if limit is not None and growth.grows else None
    if reach_s is not None:
        ahead_s = min(max(ahead_s, 1.1 * reach_s), _MOST_AHEAD * growth.span_s)
    days = ahead_s / timedelta(days=1).total_seconds()
    ends = (None if rate is None else growth.peak + rate * days for rate in (growth.low, growth.high))
    low, high = ends
    return Forecast(
        begin=growth.at,
        end=growth.at + timedelta(seconds=ahead_s),
        value=growth.peak,
        expected=growth.peak + growth.per_day * days,
        low=low,
        high=high,
        grows=growth.grows,
    )


def thinned(dots: Sequence[Dot], most: int = MOST_POINTS, restarts: Sequence[datetime] = ()) -> Sequence[Dot]:
    """No more dots than can be distinguished: medians of equal stretches of time, each of one run.

    Args:
        restarts: When another run began, by time. Only the newest `most_restarts(most)` are heeded.
    """
    if len(dots) <= most:
        return dots
    apart = restarts[-most_restarts(most) :]
    stretches = most - len(apart)
    begin, span_s = dots[0].at, (dots[-1].at - dots[0].at).total_seconds() or 1.0
    together: dict[tuple[int, int], list[Dot]] = {}
    for dot in dots:
        place = int((dot.at - begin).total_seconds() / span_s * stretches)
        together.setdefault((bisect_right(apart, dot.at), min(place, stretches - 1)), []).append(dot)
    return [_merged(some) for some in together.values()]


def most_restarts(most: int) -> int:
    """How many restarts so many dots keep apart."""
    return most // 2


def _merged(dots: Sequence[Dot]) -> Dot:
    middle = dots[len(dots) // 2].at
    return Dot(
        middle, median(dot.value for dot in dots), min(dot.low for dot in dots), max(dot.high for dot in dots)
    )
