from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from streambank.core.python310 import UTC
from streambank.overview.charts import CHARTS, DOTS, STEPS, charts_part, sparkline
from streambank.overview.judged import Judged, Sizes
from streambank.overview.plain import PART_BYTES, size_of
from streambank.sla.charts import Chart, Dot

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def chart(
    subject: str,
    dots: int,
    *,
    warn: float | None = None,
    spread: float = 0.0,
    restarts: Sequence[datetime] = (),
) -> Chart:
    values = [
        Dot(BEGIN + timedelta(seconds=n), 1 / 3 + n, 1 / 3 + n - spread, 1 / 3 + n + spread)
        for n in range(dots)
    ]
    return Chart(
        "main", "state_rows", subject, "rows", "rows", values, values[-1], warn, None, "ok", restarts, None
    )


def judged(*charts: Chart, sizes: tuple[Sizes, ...] = ()) -> Judged:
    return Judged("main", (), charts, sizes, None, ())


def test_a_chart_has_no_more_dots_than_can_be_told_apart() -> None:
    (one,) = charts_part([judged(chart("", 5000))])["charts"]
    assert len(one["t"]) == len(one["v"]) == len(one["low"]) == len(one["high"]) == DOTS
    assert one["v"][0] == 8.333 and one["low"][0] < one["v"][0] < one["high"][0]
    (one,) = charts_part([judged(chart("", 20))])["charts"]
    assert one["t"][0] == BEGIN.timestamp() and one["low"] == one["high"] == []


def test_a_chart_says_its_newest_value_which_the_last_dot_is_not() -> None:
    (one,) = charts_part([judged(chart("", 5000))])["charts"]
    assert one["newest"] == {"at": BEGIN.timestamp() + 4999, "value": 4999}
    assert one["v"][-1] < 4999


def test_restarts_of_a_chart_are_those_that_keep_its_dots_apart() -> None:
    restarts = [BEGIN + timedelta(seconds=n) for n in range(1000, 2000)]
    (one,) = charts_part([judged(chart("", 5000, restarts=restarts))])["charts"]
    assert len(one["restarts"]) == DOTS // 2 and one["restarts"][-1] == BEGIN.timestamp() + 1999
    assert len(one["t"]) <= DOTS


def test_many_charts_fit_into_the_part() -> None:
    charts = [chart(f"operator {n}", 2000, warn=1.0 if n % 2 else None, spread=1e7 / 3) for n in range(200)]
    part = charts_part([judged(*charts)])
    assert len(part["charts"]) == CHARTS and part["more"] == 140
    assert all(one["warn"] == 1.0 for one in part["charts"]), "those with limits are kept"
    assert size_of(part) < PART_BYTES


def test_the_sparkline_adds_up_queries_in_equal_steps() -> None:
    sizes = tuple(Sizes(BEGIN + timedelta(minutes=n), 100.0 + n, None) for n in range(48))
    late = (Sizes(BEGIN + timedelta(minutes=47), 1000.0, 5.0),)
    found = sparkline([judged(sizes=sizes), judged(sizes=late), judged()])
    assert found is not None and found["step_s"] == 60 and len(found["rows"]) == len(found["bytes"]) == STEPS
    assert found["rows"][0] == 100 and found["rows"][-1] == 1147 and found["rows"][-2] == 146
    assert found["bytes"] == [None] * (STEPS - 1) + [5] and found["until"] == "2026-11-01T00:47:00.000Z"


def test_of_a_long_history_the_sparkline_shows_two_days() -> None:
    sizes = tuple(Sizes(BEGIN + timedelta(hours=n), float(n), None) for n in range(300))
    found = sparkline([judged(sizes=sizes)])
    assert found is not None and found["step_s"] == 3600 and found["rows"] == list(range(252, 300))
    assert sparkline([judged()]) is None
