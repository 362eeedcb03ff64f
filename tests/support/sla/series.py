"""Histories made to measure: a level, a leak, daily waves, noise, restarts and compactions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from streambank.sla.growth.buckets import Gathered
from streambank.sla.history.point import Point

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
DAY_S = 86_400.0

Shape = Callable[[float], float]
"""The value after so many seconds."""


def leak(per_day: float, level: float = 1000.0) -> Shape:
    return lambda second: level + per_day * second / DAY_S


def wave(height: float) -> Shape:
    """A daily wave from 0 up to a height, lowest at the beginning."""
    return lambda second: height * (1 - math.cos(2 * math.pi * second / DAY_S)) / 2


def teeth(height: float, every_s: float) -> Shape:
    return lambda second: height * (second % every_s) / every_s


def both(*shapes: Shape) -> Shape:
    return lambda second: sum(shape(second) for shape in shapes)


def samples(shape: Shape, *, days: float, every_s: float = 600.0) -> Iterator[tuple[datetime, float]]:
    for number in range(int(days * DAY_S / every_s)):
        second = number * every_s
        yield BEGIN + timedelta(seconds=second), shape(second)


def noisy(shape: Shape, spread: float, seed: int, *, memory: float = 0.0) -> Shape:
    """With noise on it; `memory` is how much of the last noise stays in the next."""
    chance = random.Random(seed)
    last = 0.0

    def value(second: float) -> float:
        nonlocal last
        last = memory * last + chance.gauss(0, spread)
        return shape(second) + last

    return value


def wild(shape: Shape, share: float, size: float, seed: int) -> Shape:
    """With outliers, this share of them."""
    chance = random.Random(seed)
    return lambda second: shape(second) + (chance.choice((-1, 1)) * size if chance.random() < share else 0.0)


def gather(taken: Iterable[tuple[datetime, float]], breaks: Sequence[datetime] = ()) -> Gathered:
    gathered = Gathered()
    left = list(breaks)
    for at, value in taken:
        if left and at >= left[0]:
            gathered.break_here()
            left.pop(0)
        gathered.add(at, value)
    return gathered


def points(metric: str, shape: Shape, *, days: float, every_s: float = 600.0) -> list[Point]:
    """The same as a history's points."""
    return [
        Point(at, batch, run_id="run", epoch=1, values={metric: value})
        for batch, (at, value) in enumerate(samples(shape, days=days, every_s=every_s))
    ]
