"""What each part of the growth statistics is good for: histories made up, judged with and without it.

    python -m bench.growth

A part that nothing misses should go. Every history has noise with a memory (most of a measurement's noise is
that of the one before). One row of a Markdown table comes out for each part that is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from streambank.sla.growth import forecast, slope
from streambank.sla.growth.forecast import Growth, measure_growth
from tests.support.sla.series import Shape, both, gather, leak, noisy, samples, wave

DAY_S = 86_400.0
SEEDS = 40
RATE = 40.0

PARTS: dict[str, tuple[Any, str, Any]] = {
    "nothing": (forecast, "MIN_CELLS", forecast.MIN_CELLS),
    "covariances of the hours": (slope, "_covariances", lambda groups, period: 0.0),
    "comparing the same hours": (forecast, "SEASONAL_DAYS", 10**6),
    "extremes below five days": (forecast, "extremes", slope.slope),
    "the newest part": (forecast, "_NEWEST_SHARE", 1.0),
    "one step": (forecast, "only_step", lambda cells: None),
}


def late(per_day: float, begins_s: float) -> Shape:
    """Flat, then a leak."""
    return lambda second: 1000.0 + per_day * max(0.0, second - begins_s) / DAY_S


def step(height: float, at_s: float) -> Shape:
    """Falls once, as by a compaction."""
    return lambda second: 1000.0 - (height if second >= at_s else 0.0)


FLAT: dict[str, tuple[Callable[[], Shape], float]] = {
    "a day": (lambda: leak(0.0), 1.0),
    "three days, waves": (lambda: both(leak(0.0), wave(200.0)), 3.0),
    "two weeks, waves": (lambda: both(leak(0.0), wave(200.0)), 14.0),
    "a week, a step up": (lambda: step(-400.0, 3.5 * DAY_S), 7.0),
}
LEAKS: dict[str, tuple[Callable[[], Shape], float]] = {
    "three days, waves": (lambda: both(leak(RATE), wave(200.0)), 3.0),
    "two weeks, waves": (lambda: both(leak(RATE), wave(200.0)), 14.0),
    "two weeks, of the last four days": (lambda: late(RATE, 10 * DAY_S), 14.0),
    "a week, a step down": (lambda: both(leak(RATE, 0.0), step(400.0, 3.5 * DAY_S)), 7.0),
}


@contextmanager
def without(part: str) -> Iterator[None]:
    """The statistics without one part."""
    module, name, value = PARTS[part]
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def measured(shape: Shape, days: float) -> list[Growth]:
    """The growth of histories that differ in their noise."""
    found = [
        measure_growth(gather(samples(noisy(shape, 4.0, seed, memory=0.9), days=days, every_s=1800.0)))
        for seed in range(SEEDS)
    ]
    return [one for one in found if isinstance(one, Growth)]


def row(part: str) -> list[str]:
    """What comes out without one part: counts of histories, and the median error of the back-test."""
    grows, holds, errors, count = {0.0: 0, RATE: 0}, 0, [], 0
    with without(part):
        for histories, rate in ((FLAT, 0.0), (LEAKS, RATE)):
            for shape, days in histories.values():
                found = measured(shape(), days)
                count += len(found)
                grows[rate] += sum(one.grows for one in found)
                holds += sum((one.low or -math.inf) <= rate <= (one.high or math.inf) for one in found)
                errors += [one.backtest.error for one in found if one.backtest is not None]
    flat, leaks = len(FLAT) * SEEDS, len(LEAKS) * SEEDS
    shares = [grows[0.0] / flat, 1 - grows[RATE] / leaks, 1 - holds / count]
    return [part, *(f"{share:.1%}" for share in shares), f"{median(errors):.1f}"]


def main() -> None:
    """Leave out one part after the other."""
    print("| without | false alarms | leaks missed | true rate outside the interval | back-test error |")
    print("|---|---:|---:|---:|---:|")
    for part in PARTS:
        print("|", " | ".join(row(part)), "|", flush=True)


if __name__ == "__main__":
    main()
