"""Objectives about growth: how fast a size grows, and how long until it reaches its own limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streambank.core.units import say_duration, to_json_time
from streambank.declaration.objectives import Unit
from streambank.sla.growth.buckets import Gathered
from streambank.sla.growth.forecast import Growth, TooLittle, measure_growth
from streambank.sla.history.point import Point
from streambank.sla.judge.case import Case
from streambank.sla.judge.windows import values_of
from streambank.sla.objectives import Objective
from streambank.sla.verdict import Verdict, no_worse, say

_HOURS = 24
_SILENCE_S, _SILENT_SHARE = 3600.0, 0.25


@dataclass(frozen=True, slots=True)
class Size:
    """A size that may grow, by a name for people; `limit` is None where only its rate is judged."""

    name: str
    unit: Unit
    rate: Unit
    limit: float | None
    reset: bool


class TrendGauge:
    """One objective about growth, over all batches of a query.

    Args:
        objective: `growth`, `row_growth` or `time_to_limit`.
        sizes: What is measured: for `time_to_limit` the objectives that have their own limits.
    """

    def __init__(
        self, objective: Objective, sizes: Sequence[Objective], now: datetime, breaks: Sequence[datetime]
    ) -> None:
        self.objective = objective
        self._sizes = sizes
        self._begin = now - timedelta(seconds=objective.window_s or 0.0)
        self._breaks = sorted(breaks)
        self._gathered: dict[tuple[str, str], tuple[Size, Gathered]] = {}
        self._batch: int | None = None
        self._run: str | None = None

    def add(self, point: Point) -> None:
        if point.at < self._begin:
            return
        first = point.batch if point.stretch is None else point.stretch.first
        back = self._batch is not None and first <= self._batch
        restarted = self._run is not None and point.run_id != self._run
        self._batch, self._run = point.batch, point.run_id
        while self._breaks and self._breaks[0] <= point.at:
            self._breaks.pop(0)
            back = True
        for size, gathered in self._gathered.values():
            if back or (restarted and size.reset):
                gathered.break_here()
        for objective in self._sizes:
            for subject, value in values_of(objective, point):
                key = (objective.name, subject)
                if key not in self._gathered:
                    self._gathered[key] = (_size(objective, subject), Gathered())
                self._gathered[key][1].add(point.at, value)

    def growths(self) -> dict[tuple[str, str], Growth]:
        """How fast each size grows, by objective and subject; those that cannot be told are left out."""
        return {
            key: growth
            for key, (_, gathered) in self._gathered.items()
            if isinstance(growth := self._growth(gathered), Growth)
        }

    def _growth(self, gathered: Gathered) -> Growth | TooLittle:
        return measure_growth(gathered, min_history_s=self.objective.min_history_s)

    def verdict(self, case: Case, batches: int) -> Verdict:
        if not self._gathered:
            why = "No size with a limit was measured." if batches else "The history has no batch."
            return case.verdict("unknown", why, as_of=case.newest)
        trends = {size: self._growth(gathered) for size, gathered in self._gathered.values()}
        grown = {size: trend for size, trend in trends.items() if isinstance(trend, Growth)}
        left_out = tuple(
            f"{size.name}: {trend.why}" for size, trend in trends.items() if isinstance(trend, TooLittle)
        )
        if not grown:
            why = f"There is too little history. {'; '.join(left_out)}"
            return case.verdict("unknown", why, as_of=case.newest)
        at = max(growth.at for growth in grown.values())
        silence_s = (case.now - at).total_seconds()
        if silence_s > max(_SILENCE_S, _SILENT_SHARE * max(growth.span_s for growth in grown.values())):
            why = f"Nothing grows while no batch runs: the newest is of {to_json_time(at)}."
            return case.verdict("unknown", why, as_of=at)
        if self.objective.name == "time_to_limit":
            return self._time_to_limit(case, grown, left_out)
        ((size, growth),) = grown.items()
        return self._rate(case, size, growth)

    def _rate(self, case: Case, size: Size, growth: Growth) -> Verdict:
        value = growth.per_day / _HOURS
        level = self.objective.level_of(value) if growth.grows else "ok"
        if not growth.sure:
            level = no_worse(level, "warn")
        if growth.grows:
            why = f"{size.name} grows by {self.objective.against(level, value)}."
        else:
            why = f"{size.name} does not certainly grow: {say(value, size.rate)} may be chance."
        return case.verdict(
            level,
            why,
            value=value,
            subject=size.name,
            as_of=growth.at,
            evidence=tuple(_evidence(size, growth)),
            growth=growth,
        )

    def _time_to_limit(self, case: Case, grown: Mapping[Size, Growth], left_out: tuple[str, ...]) -> Verdict:
        reached: list[tuple[float, Size, Growth]] = []
        for size, growth in grown.items():
            if size.limit is None or not growth.grows:
                continue
            expected_s = growth.reach(size.limit).expected_s
            if expected_s is not None:
                gone_s = (case.now - growth.at).total_seconds()
                reached.append((max(0.0, expected_s - max(0.0, gone_s)), size, growth))
        if not reached:
            evidence = [line for size, growth in grown.items() for line in _evidence(size, growth)]
            why = f"Nothing certainly grows towards its limit: {', '.join(size.name for size in grown)}."
            last = max(growth.at for growth in grown.values())
            return case.verdict("ok", why, as_of=last, evidence=(*evidence, *left_out))
        seconds, size, growth = min(reached, key=lambda one: one[0])
        limit = size.limit or 0.0
        level = self.objective.level_of(seconds)
        if not growth.sure:
            level = no_worse(level, "warn")
        reach = growth.reach(limit)
        soonest, latest = (
            "never" if after_s is None else to_json_time(growth.at + timedelta(seconds=after_s))
            for after_s in (reach.soonest_s, reach.latest_s)
        )
        return case.verdict(
            level,
            f"{size.name} reaches {say(limit, size.unit)} in {self.objective.against(level, seconds)}.",
            value=seconds,
            subject=size.name,
            as_of=growth.at,
            evidence=(
                f"By the interval: {soonest} at the soonest, {latest} at the latest.",
                *_evidence(size, growth),
                *left_out,
            ),
            growth=growth,
        )


def _size(objective: Objective, subject: str) -> Size:
    """What is measured for an objective: a size's own, or the one metric of a rate."""
    own = objective.promise.kind == "window"
    metric = objective.name if own else objective.promise.metrics[0]
    rows = objective.promise.unit in ("rows", "rows/h")
    return Size(
        name=f"{metric} of {subject}" if subject else metric,
        unit="rows" if rows else "bytes",
        rate="rows/h" if rows else "bytes/h",
        limit=objective.size_limit if own else None,
        reset=objective.promise.reset,
    )


def _evidence(size: Size, growth: Growth) -> Iterable[str]:
    low, high = (
        "unknown" if end is None else say(end / _HOURS, size.rate) for end in (growth.low, growth.high)
    )
    yield (
        f"{size.name} is at {say(growth.level, size.unit)} and grows by "
        f"{say(growth.per_day / _HOURS, size.rate)} (95 %: {low} to {high}), from {growth.cells} medians of "
        f"{say_duration(growth.width_s)} ({growth.method})."
    )
    if growth.backtest is None:
        yield "The history is too short to try such a forecast on its past."
    else:
        tried = growth.backtest
        yield (
            f"Tried {tried.tries} times on its own past, {say_duration(tried.horizon_s)} ahead: the forecast "
            f"was off by {say(tried.error, size.unit)}, and a forecast of no change by "
            f"{say(tried.naive_error, size.unit)}."
        )
    yield from growth.notes
