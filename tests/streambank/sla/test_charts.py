"""What is drawn of a query."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from streambank.declaration.sla import Declared
from streambank.sla.charts import Dot, charts_of, thinned
from streambank.sla.history.hour import HourOfRun
from streambank.sla.history.point import History
from tests.support.sla.judged_histories import MINUTE, NOW, STEADY, batches, declare
from tests.support.sla.series import leak, points


def test_each_measurement_has_a_chart_with_the_limits_of_its_objective() -> None:
    policy = declare(state_bytes=Declared(warn=5e9, breach=9e9), batch_duration=Declared(off=True))
    charts = {one.objective: one for one in charts_of(History("main", batches([STEADY] * 90)), policy, NOW)}
    assert (charts["state_bytes"].warn, charts["state_bytes"].breach) == (5e9, 9e9)
    assert charts["pause"].warn is charts["pause"].breach is None and charts["pause"].level == "ok"
    assert "batch_duration" not in charts and "failed_batches" not in charts
    assert [dot.value for dot in charts["watermark_lag"].dots] == [60.0] * 90
    assert charts["access_latency"].name.startswith("access_latency of ")


def test_a_forecast_reaches_the_limit_where_that_is_near() -> None:
    history = points("state_bytes", leak(1e9, 2e9), days=8)
    now = history[-1].at + MINUTE
    (near,) = charts_of(History("main", history), declare(state_bytes=Declared(breach=12e9)), now)
    assert near.forecast is not None and near.forecast.grows
    assert near.forecast.value == pytest.approx(10e9, rel=0.01)
    assert near.forecast.expected > 12e9 and near.forecast.end > now + timedelta(days=2)
    assert near.forecast.low is not None and near.forecast.high is not None
    (far,) = charts_of(History("main", history), declare(state_bytes=Declared(breach=1e15)), now)
    assert far.forecast is not None and far.forecast.end < now + timedelta(days=33)
    (short,) = charts_of(History("main", history[:3]), None, now)
    assert short.forecast is None


def test_restarts_are_marked() -> None:
    first, second = batches([STEADY] * 30), batches([STEADY] * 20)
    second = [replace(one, run_id="another") for one in second[-9:]]
    chart = charts_of(History("main", [*first[:-9], *second]), None, NOW)[0]
    assert list(chart.restarts) == [second[0].at]


def test_an_hour_is_drawn_from_its_smallest_to_its_largest_value() -> None:
    gathering = HourOfRun()
    some = batches([{"state_bytes": value} for value in (1e9, 5e9, 3e9)], until=NOW - timedelta(minutes=1))
    for one in some:
        assert list(gathering.take(one)) == []
    (chart,) = charts_of(History("main", list(gathering.close())), None, NOW)
    assert chart.dots == [Dot(some[-1].at, 3e9, 1e9, 5e9)]


def test_no_more_is_drawn_than_can_be_told_apart() -> None:
    dots = [Dot(NOW + MINUTE * n, float(n), n - 0.5, n + 0.5) for n in range(5000)]
    fewer = thinned(dots, 100)
    assert len(fewer) == 100 and [one.at for one in fewer] == sorted(one.at for one in fewer)
    assert fewer[0].low == -0.5 and fewer[-1].high == 4999.5
    assert thinned(dots[:100], 100) == dots[:100]


def test_no_dot_stands_for_values_of_two_runs() -> None:
    dots = [Dot(NOW + MINUTE * n, float(n >= 2470), float(n >= 2470), float(n >= 2470)) for n in range(5000)]
    fewer = thinned(dots, 100, [dots[2470].at])
    assert len(fewer) == 100 and {(one.low, one.high) for one in fewer} == {(0.0, 0.0), (1.0, 1.0)}
    assert {(one.low, one.high) for one in thinned(dots, 100)} > {(0.0, 1.0)}, "a stretch goes across it"


def test_of_many_restarts_the_newest_keep_dots_apart() -> None:
    dots = [Dot(NOW + MINUTE * n, float(n), float(n), float(n)) for n in range(1000)]
    fewer = thinned(dots, 100, [one.at for one in dots])
    assert len(fewer) <= 100 and [one.value for one in fewer[-50:]] == [float(n) for n in range(950, 1000)]


def test_the_newest_value_is_as_it_was_measured() -> None:
    values = [{"state_bytes": 1e9}] * 1500 + [{"state_bytes": 7e9}]
    (chart,) = charts_of(History("main", batches(values)), None, NOW)
    assert chart.newest.value == 7e9 and chart.newest.at >= chart.dots[-1].at
    assert chart.dots[-1].value == 4e9, "a median of the last stretch"
