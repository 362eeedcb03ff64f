"""The parts `verdicts` and `charts`: what the job promises, judged and drawn, and its partitions by size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from streambank.core.units import to_json_time
from streambank.overview.judged import Judged, Sizes
from streambank.overview.plain import rounded
from streambank.sla.charts import Chart, Dot, Forecast, most_restarts, thinned
from streambank.sla.verdict import LEVELS, Verdict, worst

DOTS = 300
"""The most dots of a chart."""
CHARTS = 60
"""The most charts; those without a limit go first."""
PARTITIONS = 64
"""So many of the largest partitions are shown, of all stores together."""
STORES = 64
VERDICTS = 200
_FEWEST_DOTS = 40
_ALL_DOTS = 5000
"""Of all charts together: a dot takes some 40 bytes of the part."""
STEPS = 48
"""How many steps the sparkline has."""
_STEPS_S = (60.0, 300.0, 900.0, 3600.0)
"""How long a step may be: the shortest with which the history fits; of a long one only its end is drawn."""


def verdicts_part(judged: Sequence[Judged]) -> dict[str, Any]:
    """The content of the part `verdicts`: worst first."""
    verdicts = worst_first([verdict for one in judged for verdict in one.verdicts])
    return {
        "level": worst(one for one in verdicts if one.mute is None),
        "verdicts": [
            {name: value for name, value in one.to_dict().items() if name != "at"}
            for one in verdicts[:VERDICTS]
        ],
        "more": max(0, len(verdicts) - VERDICTS),
    }


def worst_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts by how bad they are, those that are muted last within their level."""
    return sorted(verdicts, key=lambda one: (-LEVELS.index(one.level), one.mute is not None))


def counted(verdicts: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many verdicts of the part there are of each level."""
    found = Counter(str(one["level"]) for one in verdicts)
    return {level: found[level] for level in LEVELS if found[level]}


def charts_part(judged: Sequence[Judged]) -> dict[str, Any]:
    """The content of the part `charts`."""
    charts = [chart for one in judged for chart in one.charts]
    if len(charts) > CHARTS:
        kept = sorted(charts, key=lambda one: one.warn is None and one.breach is None)[:CHARTS]
        charts = [one for one in charts if any(one is each for each in kept)]
    most = max(_FEWEST_DOTS, min(DOTS, _ALL_DOTS // max(1, len(charts))))
    everything = sum(len(one.charts) for one in judged)
    return {
        "charts": [_chart(one, most) for one in charts],
        "more": everything - len(charts),
        **_partitions(judged),
        "unreadable": [{"query": one.query, "why": why} for one in judged for why in one.unreadable],
    }


def _chart(chart: Chart, most: int) -> dict[str, Any]:
    restarts = chart.restarts[-most_restarts(most) :]
    dots = thinned(chart.dots, most, restarts)
    return {
        **_picked(
            chart, "query", "objective", "subject", "name", "meaning", "unit", "warn", "breach", "level"
        ),
        "t": [_second(dot.at) for dot in dots],
        "v": [rounded(dot.value) for dot in dots],
        **_band(dots),
        "newest": {"at": _second(chart.newest.at), "value": rounded(chart.newest.value)},
        "restarts": [_second(moment) for moment in restarts],
        "forecast": None if chart.forecast is None else _forecast(chart.forecast),
    }


def _band(dots: Sequence[Dot]) -> dict[str, list[float | int]]:
    """Between what the values lie that each dot stands for; nothing where each stands for one."""
    if all(dot.low == dot.value == dot.high for dot in dots):
        return {"low": [], "high": []}
    return {"low": [rounded(dot.low) for dot in dots], "high": [rounded(dot.high) for dot in dots]}


def _forecast(forecast: Forecast) -> dict[str, Any]:
    numbers = _picked(forecast, "value", "expected", "low", "high")
    return {
        "begin": _second(forecast.begin),
        "end": _second(forecast.end),
        **{name: None if number is None else rounded(number) for name, number in numbers.items()},
        "grows": forecast.grows,
    }


def _picked(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _second(moment: datetime) -> int:
    return round(moment.timestamp())


def _partitions(judged: Sequence[Judged]) -> dict[str, list[dict[str, Any]]]:
    stores = [(one.query, store) for one in judged if one.skew is not None for store in one.skew.stores]
    stores.sort(key=lambda one: (one[1].uneven, one[1].skew or 0.0), reverse=True)
    partitions = [
        {
            "query": query,
            **_picked(store, "operator", "name", "store"),
            **_picked(part, "partition", "bytes", "rows"),
        }
        for query, store in stores
        for part in store.parts
    ]
    partitions.sort(key=lambda one: one["bytes"], reverse=True)
    return {
        "partitions": partitions[:PARTITIONS],
        "stores": [
            {
                "query": query,
                **_picked(store, "operator", "name", "store", "rows", "bytes", "by", "uneven", "advice"),
                "partitions": len(store.parts),
                "skew": None if store.skew is None else rounded(store.skew),
            }
            for query, store in stores[:STORES]
        ],
    }


def sparkline(judged: Sequence[Judged]) -> dict[str, Any] | None:
    """How large the state of all queries was over time, in equal steps, oldest first; None for no state."""
    every = [size for one in judged for size in one.sizes]
    if not every:
        return None
    begin, until = min(one.at for one in every), max(one.at for one in every)
    span_s = (until - begin).total_seconds()
    step_s = next((step for step in _STEPS_S if step * STEPS >= span_s), _STEPS_S[-1])
    first = until - timedelta(seconds=step_s * STEPS)
    by_query = [_stepped(one.sizes, first, step_s) for one in judged if one.sizes]
    steps = [[one for one in at_once if one is not None] for at_once in zip(*by_query, strict=True)]
    return {
        "step_s": int(step_s),
        "until": to_json_time(until),
        "rows": [_total([one.rows for one in step]) for step in steps],
        "bytes": [_total([one.bytes for one in step]) for step in steps],
    }


def _stepped(sizes: Sequence[Sizes], first: datetime, step_s: float) -> list[Sizes | None]:
    found: list[Sizes | None] = [None] * STEPS
    for one in sizes:
        if one.at > first:  # a step ends with its last moment, as all of them do with the newest batch
            found[min(math.ceil((one.at - first).total_seconds() / step_s), STEPS) - 1] = one
    return found


def _total(values: Sequence[float | None]) -> float | int | None:
    known = [value for value in values if value is not None]
    return rounded(sum(known)) if known else None
