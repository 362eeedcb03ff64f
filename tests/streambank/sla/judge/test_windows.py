from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from streambank.declaration.objectives import Statistic
from streambank.sla.history.point import Point
from streambank.sla.judge.case import Case
from streambank.sla.judge.windows import WindowGauge, statistic, values_of
from streambank.sla.objectives import objectives
from streambank.sla.verdict import Verdict

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KNOWN = {one.name: one for one in objectives()}
HUNDRED = [float(number) for number in range(1, 101)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("p5", 5), ("p90", 90), ("p95", 95), ("p99", 99), ("mean", 50.5), ("median", 50.5), ("max", 100),
     ("min", 1), ("last", 100), (None, 100)],
)  # fmt: skip
def test_a_window_is_one_figure(name: Statistic | None, value: float) -> None:
    assert statistic(HUNDRED, name) == value


@pytest.mark.parametrize("name", ["p5", "p99"])
def test_a_percentile_of_one_value_is_that_value(name: Statistic) -> None:
    assert statistic([7.0], name) == 7.0


def judged(name: str, *points: Point) -> Verdict:
    gauge = WindowGauge(KNOWN[name], NOW)
    for point in points:
        gauge.add(point)
    newest = points[-1].at if points else None
    return gauge.verdict(Case(KNOWN[name], "flights", "main", NOW, newest), len(points))


def ago(minutes: float, batch: int, **values: float) -> Point:
    return Point(NOW - timedelta(minutes=minutes), batch, values=values)


def test_what_the_window_shows_is_held_against_the_limits() -> None:
    calm = judged("checkpoint_duration", *(ago(50 - n, n, checkpoint_s=10.0) for n in range(20)))
    assert (calm.level, calm.value) == ("ok", 10.0)
    slow = judged("checkpoint_duration", *(ago(50 - n, n, checkpoint_s=700.0) for n in range(20)))
    assert (slow.level, slow.value, slow.since) == ("breach", 700.0, NOW - timedelta(minutes=50))
    assert "20 batches in the window, the largest" in " ".join(slow.evidence)


def test_a_breach_before_a_calm_window_is_another_one() -> None:
    points = [ago(200, 0, checkpoint_s=700.0), ago(10, 1, checkpoint_s=700.0), ago(5, 2, checkpoint_s=700.0)]
    assert judged("checkpoint_duration", *points).since == NOW - timedelta(minutes=10)


def test_a_size_stays_when_no_batch_comes_and_a_duration_does_not() -> None:
    old = ago(600, 3, state_bytes=200e9, checkpoint_s=700.0)
    size = judged("state_bytes", old)
    assert (size.level, size.value) == ("breach", 200e9)
    assert "No batch in the last" in " ".join(size.evidence)
    assert judged("checkpoint_duration", old).level == "unknown"


def test_without_any_value_it_is_unknown_and_says_why() -> None:
    assert judged("checkpoint_duration").why == "The history has no batch."
    silent = judged("checkpoint_duration", ago(1, 0, state_bytes=1.0))
    assert silent.level == "unknown" and "checkpoint_s" in silent.why
    nan = judged("checkpoint_duration", ago(1, 0, checkpoint_s=math.nan))
    assert nan.level == "unknown"


def test_of_several_metrics_the_worst_counts_and_the_others_are_shown() -> None:
    found = judged("access_latency", ago(1, 0, get_ms=5.0, put_ms=200.0))
    assert (found.level, found.value, found.subject) == ("breach", 200.0, "put_ms")
    assert any("get_ms" in line for line in found.evidence)
    point = ago(1, 0, get_ms=5.0, put_ms=math.inf)
    assert values_of(KNOWN["access_latency"], point) == [("get_ms", 5.0)]
