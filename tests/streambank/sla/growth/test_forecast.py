"""What grows is found with its rate; what only looks like growth is not."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.sla.growth.buckets import DAY_S, Gathered
from streambank.sla.growth.forecast import Growth, TooLittle, measure_growth, only_step
from streambank.sla.growth.slope import Cell
from tests.support.sla.series import BEGIN, Shape, both, gather, leak, noisy, samples, teeth, wave, wild

FEW = settings(max_examples=15, deadline=None)


def grown(shape: Shape, days: float, every_s: float = 600.0) -> Growth:
    found = measure_growth(gather(samples(shape, days=days, every_s=every_s)))
    assert isinstance(found, Growth)
    return found


@FEW
@given(
    rate=st.floats(20, 500),
    height=st.floats(0, 2000),
    spread=st.floats(0, 20),
    seed=st.integers(0, 1000),
    days=st.integers(5, 10),
)
def test_a_leak_under_a_daily_wave_is_found_with_its_rate(
    rate: float, height: float, spread: float, seed: int, days: int
) -> None:
    found = grown(noisy(both(leak(rate), wave(height)), spread, seed), days)
    assert found.method == "seasonal" and found.sure and found.grows
    assert found.per_day == pytest.approx(rate, abs=max(0.02 * rate, spread))
    # The crest of the wave is what reaches the limit.
    top = 1000 + rate * days + height
    assert found.peak == pytest.approx(top, abs=0.1 * height + 4 * spread + rate * 0.1)
    expected_s = found.reach(top + 10 * rate).expected_s
    assert expected_s == pytest.approx(10 * DAY_S, rel=0.05 + (0.1 * height + 12 * spread) / rate)


@FEW
@given(height=st.floats(1, 5000), days=st.integers(2, 10), spread=st.floats(0, 0.01))
def test_a_daily_wave_is_no_growth(height: float, days: int, spread: float) -> None:
    found = grown(noisy(both(leak(0), wave(height)), spread * height, days), days)
    assert not (found.grows and found.per_day > 0.05 * height)
    assert not (found.sure and found.grows and found.per_day > 0.01 * height)


@FEW
@given(rate=st.floats(20, 500), share=st.floats(0, 0.2), size=st.floats(1e4, 1e8), seed=st.integers(0, 1000))
def test_outliers_do_not_move_the_rate(rate: float, share: float, size: float, seed: int) -> None:
    found = grown(wild(leak(rate), share, size, seed), 6)
    assert found.grows and found.per_day == pytest.approx(rate, rel=0.05)


@FEW
@given(rate=st.floats(50, 500), hours=st.sampled_from([1, 2, 3, 4, 6, 8, 12]), height=st.floats(10, 200))
def test_the_teeth_of_compactions_are_no_growth_and_hide_none(rate: float, hours: int, height: float) -> None:
    flat = grown(both(leak(0), teeth(height, hours * 3600.0)), 7)
    assert flat.per_day == pytest.approx(0, abs=1e-6) and not flat.grows
    steep = grown(both(leak(rate), teeth(height, hours * 3600.0)), 7)
    assert steep.per_day == pytest.approx(rate, rel=0.02) and steep.sure


@pytest.mark.parametrize("known", [True, False])
def test_a_compaction_in_the_middle_hides_no_leak(known: bool) -> None:
    moment = 3.4 * DAY_S

    def shape(second: float) -> float:
        return leak(100)(second) - (900 if second >= moment else 0)

    breaks = [BEGIN + timedelta(seconds=moment)] if known else []
    found = measure_growth(gather(samples(shape, days=7), breaks))
    assert isinstance(found, Growth)
    assert found.per_day == pytest.approx(100, rel=0.02) and found.grows
    assert found.level == pytest.approx(800, rel=0.02)
    assert any("A step at 2026-11-04T" in note for note in found.notes) is not known


def test_growth_that_gets_faster_is_no_step() -> None:
    found = grown(lambda second: 1000 * 2 ** (second / DAY_S * 2), 5)
    assert found.grows and not any("step" in note for note in found.notes)


@pytest.mark.parametrize("days", [7, 14])
def test_a_leak_that_began_lately_is_found_though_most_of_the_history_is_flat(days: int) -> None:
    begin = (days - 3.5) * DAY_S
    late = both(wave(100), lambda second: 1000 + 100 * max(0.0, second - begin) / DAY_S)
    found = grown(noisy(late, 10, 7), days)
    assert found.grows and found.per_day == pytest.approx(100, rel=0.1)
    assert not found.sure and any("faster than before" in note for note in found.notes)


def test_noise_with_a_memory_seldom_looks_like_growth_and_the_interval_holds_what_is_true() -> None:
    tries = 60
    alarms = covered = 0
    for seed in range(tries):
        flat = grown(noisy(leak(0), 5, seed, memory=0.9), 6, 1800.0)
        alarms += flat.grows
        steep = grown(noisy(leak(50), 5, seed + tries, memory=0.9), 6, 1800.0)
        assert steep.high is not None and steep.low is not None
        covered += steep.low <= 50 <= steep.high
    assert alarms <= tries * 0.1
    assert covered >= tries * 0.85


def test_a_short_history_says_that_it_cannot_tell_a_wave_from_growth() -> None:
    found = grown(wave(500), 0.25, 60.0)
    assert found.grows and not found.sure and found.method == "plain"
    assert "a daily wave cannot be distinguished from growth" in found.notes[0]
    two = grown(both(leak(100), wave(500)), 3)
    assert two.grows and not two.sure and "rests on 3 days" in two.notes[0]


@pytest.mark.parametrize(("count", "every_s", "least_s"), [(0, 1, 0), (9, 60, 0), (500, 1, 3600)])
def test_too_little_history_is_said(count: int, every_s: int, least_s: float) -> None:
    gathered = Gathered()
    for number in range(count):
        gathered.add(BEGIN + timedelta(seconds=number * every_s), float(number))
    found = measure_growth(gathered, min_history_s=least_s)
    assert isinstance(found, TooLittle) and found.to_dict() == {"too_little": found.why}


def test_seconds_are_enough_where_no_more_is_asked_for() -> None:
    gathered = gather((BEGIN + timedelta(seconds=number), 100.0 + number) for number in range(30))
    found = measure_growth(gathered)
    assert isinstance(found, Growth) and found.per_day == pytest.approx(DAY_S) and not found.sure


def test_rare_batches_are_compared_by_days() -> None:
    found = grown(both(leak(100), wave(10)), 20, 7 * 3600.0)
    assert found.method in ("daily", "seasonal") and found.per_day == pytest.approx(100, rel=0.05)


def test_when_a_limit_is_reached_comes_with_both_ends_of_the_interval() -> None:
    found = grown(noisy(leak(100), 20, 3), 8)
    reach = found.reach(found.peak + 700)
    assert reach.soonest_s is not None and reach.expected_s is not None and reach.latest_s is not None
    assert reach.soonest_s <= reach.expected_s <= reach.latest_s
    assert reach.expected_s == pytest.approx(7 * DAY_S, rel=0.1)
    assert found.reach(found.peak - 1).expected_s == 0.0
    shrinking = grown(leak(-10), 6)
    assert not shrinking.grows and shrinking.reach(1e6).soonest_s is None
    assert found.reach(1e15).expected_s is None


def test_the_forecast_is_tried_on_the_historys_own_past() -> None:
    found = grown(noisy(both(leak(100), wave(300)), 10, 1), 10)
    assert found.backtest is not None and found.backtest.tries == 5 and found.backtest.holds
    assert found.backtest.horizon_s >= DAY_S / 2
    assert found.backtest.error < 30 < 100 < found.backtest.naive_error
    # A leak that has stopped: the forecasts of the past were wrong, and that is said.
    stopped = grown(lambda second: 1000 + 100 * min(second / DAY_S, 6.0), 9)
    assert stopped.backtest is not None and not stopped.backtest.holds and not stopped.sure


def test_a_long_history_is_gathered_in_little_memory() -> None:
    gathered = Gathered()
    for number in range(50_000):
        gathered.add(BEGIN + timedelta(seconds=number * 20), 5.0 + number)
    assert gathered.width_s > 20 and len(gathered.cells()) <= 20_001
    found = measure_growth(gathered)
    assert isinstance(found, Growth) and found.per_day == pytest.approx(DAY_S / 20, rel=0.01)


def test_growth_as_json_has_only_what_json_knows() -> None:
    found = grown(leak(100), 6)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["per_day"] == pytest.approx(100)
    open_ended = grown(lambda second: 1000.0 + (500 if second > DAY_S * 1.2 else 0) + second / 1e4, 2)
    assert json.dumps(open_ended.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("values", "position"),
    [
        ([], None),
        ([1.0] * 5, None),
        ([100.0] * 20, None),
        ([100.0] * 20 + [50.0] * 5, 20),
        ([100.0] * 4 + [50.0] * 20, 4),
        ([100.0] * 12 + [500.0] * 12, 12),
        ([0.0] * 12 + [500.0] * 12, 12),
        # Nobody knows yet whether this stays.
        ([100.0] * 20 + [50.0] * 4, None),
        ([100.0] * 20 + [200.0, 300.0, 400.0, 500.0], None),
        # An outlier, two of them, and a step that is small.
        ([100.0] * 12 + [1e9] + [100.0] * 12, None),
        ([100.0] * 12 + [1e9, 1e9] + [100.0] * 12, None),
        ([100.0] * 12 + [85.0] * 12, None),
        # A habit.
        (([100.0] * 8 + [50.0] * 8) * 3, None),
        # A line, however steep, and growth that gets faster.
        ([float(number) for number in range(40)], None),
        ([2.0**number for number in range(30)], None),
    ],
)
def test_a_single_step(values: list[float], position: int | None) -> None:
    assert only_step([Cell(number, value) for number, value in enumerate(values)]) == position
