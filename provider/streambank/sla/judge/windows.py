"""Objectives about a window: what is gathered from each batch, in one pass, and what that amounts to."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from statistics import fmean, median

from streambank.core.units import say_duration, to_json_time
from streambank.declaration.objectives import HOUR_S, Statistic
from streambank.sla.history.point import Point
from streambank.sla.judge.case import Case
from streambank.sla.objectives import Objective
from streambank.sla.verdict import LEVELS, Level, Verdict, say

_SHARES = {"p5": 0.05, "p90": 0.90, "p95": 0.95, "p99": 0.99}
_OTHERS_SHOWN = 4


def statistic(values: Sequence[float], name: Statistic | None) -> float:
    """One figure for some values in the order of time; percentiles are seen values (nearest rank)."""
    if name in _SHARES:
        return sorted(values)[max(0, math.ceil(_SHARES[name] * len(values)) - 1)]
    if name == "mean":
        return fmean(values)
    if name == "median":
        return median(values)
    if name == "max":
        return max(values)
    if name == "min":
        return min(values)
    return values[-1]


class Series:
    """What one subject of an objective has shown."""

    def __init__(self, objective: Objective, begin: datetime) -> None:
        self._objective = objective
        self._promise = objective.promise
        self._first_limit = objective.first_limit
        self._begin = begin
        self._calm = timedelta(seconds=objective.window_s or 0.0)
        self.values = array("d")
        self.newest = 0.0
        self.newest_at = begin
        self._extreme: tuple[float, int] | None = None
        self._over: dict[Level, tuple[datetime, datetime]] = {}

    def add(self, point: Point, value: float) -> None:
        self.newest, self.newest_at = value, point.at
        if point.at >= self._begin:
            self.values.append(value)
            if self._extreme is None or self._promise.exceeds(value, self._extreme[0]):
                self._extreme = (value, point.batch)
        if self._promise.exceeds(value, self._first_limit):
            level = self._objective.level_of(value)
            begin = point.at if point.stretch is None else point.stretch.began
            for each in LEVELS[LEVELS.index("warn") : LEVELS.index(level) + 1]:
                first, last = self._over.get(each, (begin, begin))
                self._over[each] = (begin if begin - last > self._calm else first, point.at)

    def value(self, newest: datetime | None) -> float | None:
        """What is held against the limits; None where no batch of the window tells.

        A size of the newest batch still holds; one that the newest batch no longer tells, as of an operator
        that is gone, does not.
        """
        if self.values:
            return statistic(self.values, self._objective.statistic)
        return self.newest if self._objective.promise.stays and self.newest_at == newest else None

    def since(self, level: Level) -> datetime | None:
        """When batches began to be that bad: the first one after a whole window without any."""
        return self._over[level][0] if level in self._over else None

    def evidence(self) -> Iterable[str]:
        unit = self._objective.promise.unit
        if not self.values:
            window = say_duration(self._objective.window_s or 0.0)
            yield f"No batch in the last {window}; this value is of {to_json_time(self.newest_at)}."
        elif self._extreme is not None:
            what = "smallest" if self._objective.promise.below else "largest"
            value, batch = self._extreme
            batches = "1 batch" if len(self.values) == 1 else f"{len(self.values)} batches"
            yield f"{batches} in the window, the {what} {say(value, unit)} in batch {batch}."


class WindowGauge:
    """One objective about a window, over all batches of a query."""

    def __init__(self, objective: Objective, now: datetime) -> None:
        self.objective = objective
        self._calm_s = objective.window_s or 0.0
        self._begin = now - timedelta(seconds=self._calm_s)
        self._series: dict[str, Series] = {}

    def add(self, point: Point) -> None:
        """Take one batch, or an hour of them: its worst, unless one batch of an hour would say too much."""
        seen = point
        if point.stretch is not None and self._calm_s >= HOUR_S:
            seen = point.stretch.lowest if self.objective.promise.below else point.stretch.highest
        for subject, value in values_of(self.objective, seen):
            if subject not in self._series:
                self._series[subject] = Series(self.objective, self._begin)
            self._series[subject].add(point, value)

    def verdict(self, case: Case, batches: int) -> Verdict:
        objective = self.objective
        named = objective.promise.begin
        if not self._series:
            return case.verdict("unknown", _nothing(objective, batches), as_of=case.newest)
        known = {
            name: (series, value)
            for name, series in self._series.items()
            if (value := series.value(case.newest)) is not None
        }
        if not known:
            last = max(series.newest_at for series in self._series.values())
            window = say_duration(objective.window_s or 0.0)
            why = f"{named}: no batch in the last {window}, the newest was at {to_json_time(last)}."
            return case.verdict("unknown", why, as_of=last)
        sign = -1 if objective.promise.below else 1
        order = sorted(known, key=lambda name: sign * known[name][1], reverse=True)
        series, value = known[order[0]]
        level = objective.level_of(value)
        subject = f" of {order[0]}" if order[0] else ""
        how = objective.over
        others = [f"{name}: {say(known[name][1], objective.promise.unit)}." for name in order[1:]]
        return case.verdict(
            level,
            f"{named}{subject}{f' ({how})' if how else ''} is {objective.against(level, value)}.",
            value=value,
            subject=order[0],
            since=series.since(level),
            as_of=series.newest_at,
            evidence=(*series.evidence(), *others[:_OTHERS_SHOWN]),
        )


def values_of(objective: Objective, point: Point) -> Sequence[tuple[str, float]]:
    """The values of a batch that an objective is about, with the operator or metric that each is of."""
    metrics = objective.promise.metrics
    if len(metrics) == 1 and not objective.promise.per_operator:  # nearly all, and there may be millions
        value = point.values.get(metrics[0])
        return () if value is None or not math.isfinite(value) else (("", value),)
    found = [
        (f"operator {operator}", values[metric])
        for operator, values in (point.operators if objective.promise.per_operator else {}).items()
        for metric in metrics
        if metric in values
    ]
    if not found:
        found = [
            (metric if len(metrics) > 1 else "", point.values[metric])
            for metric in metrics
            if metric in point.values
        ]
    return [(subject, value) for subject, value in found if math.isfinite(value)]


def _nothing(objective: Objective, batches: int) -> str:
    if not batches:
        return "The history has no batch."
    metrics = " or ".join(objective.promise.metrics)
    return (
        f"None of the {batches} batches of the history has {metrics}: "
        "the query has no such value, or does not run under the runner."
    )
