"""Points in columns are the points that were put in."""

from __future__ import annotations

import tracemalloc

import pytest

from streambank.sla.history.history import HistoryScan
from streambank.sla.history.point import Point
from streambank.sla.history.points import Points
from tests.support.histories import RECORDED, at, recorded

ODD = [
    Point(at(0), 0),
    Point(at(0.000001), 5, "run", 2, {"a": 1.0}, {3: {"b": -2.5}}, at(-86_400 * 365 * 80)),
    Point(at(2), 6, None, None, {"b": 0.0}, {3: {"b": 1.0}, 7: {"a": 9e300}}),
    Point(at(3), 7, "other", 1 << 40, {"a": 2.0}),
]


def columns(points: list[Point]) -> Points:
    held = Points()
    for point in points:
        held.append(point)
    return held


@pytest.mark.parametrize("name", [*RECORDED, "odd"])
def test_every_point_comes_back(name: str) -> None:
    points = ODD if name == "odd" else list(HistoryScan(recorded(name)))
    held = columns(points)
    assert list(held) == list(held) == points
    assert len(held) == len(points)
    assert [held[place] for place in range(len(points))] == points
    assert held[-1] == points[-1] and held[1:3] == tuple(points[1:3]) and held[::-1] == tuple(points[::-1])


def test_what_is_not_there_is_not_found() -> None:
    held = columns(ODD)
    for place in (4, -5):
        with pytest.raises(IndexError):
            held[place]
    assert list(Points()) == [] and not Points()


def test_one_metric_as_a_series() -> None:
    held = columns(ODD)
    assert list(held.series("a")) == [(at(0.000001), 1.0), (at(3), 2.0)]
    assert list(held.series("b", 3)) == [(at(0.000001), -2.5), (at(2), 1.0)]
    assert list(held.series("nothing")) == list(held.series("a", 3)) == []


def test_a_batch_takes_little_memory() -> None:
    point = list(HistoryScan(recorded("aircraft-sessions")))[1]
    held = Points()
    tracemalloc.start()
    try:
        for _ in range(2000):
            held.append(point)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 2000 < 450
