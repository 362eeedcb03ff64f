"""The estimators against figures worked out by hand."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambank.sla.growth.slope import Cell, _covariances, _groups, _variance, extremes, slope

FINITE = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)
FEW = settings(max_examples=40, deadline=None)


def cells(values: list[float], **more: int) -> list[Cell]:
    return [Cell(number, value, **more) for number, value in enumerate(values)]


def test_sens_slope_and_interval_by_hand() -> None:
    # Ten values, 45 pairs, Var(S) = 10 * 9 * 25 / 18 = 125; C = 1.96 * 11.18 = 21.9: pairs 11 and 35 of 45.
    values = [1.0, 3.0, 2.0, 5.0, 4.0, 7.0, 6.0, 9.0, 8.0, 11.0]
    found = slope(cells(values))
    pairs = sorted((b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(values), 2))
    assert found is not None and found.pairs == 45
    assert found.value == pairs[22]
    assert found.low <= pairs[10] and found.high >= pairs[34]
    assert 0 < found.low < 1 < found.high


def test_too_few_values_have_an_open_interval() -> None:
    found = slope(cells([1.0, 2.0, 3.0]))
    assert found is not None and found.value == 1.0
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert slope(cells([1.0])) is None and slope([]) is None


def test_values_of_different_segments_are_never_compared() -> None:
    split = [*cells([1.0, 2.0, 3.0, 4.0, 5.0]), *(Cell(5 + n, 100.0 + n, segment=1) for n in range(5))]
    found = slope(split)
    assert found is not None and found.value == 1.0 and found.pairs == 20
    assert slope([Cell(0, 1.0, 0), Cell(1, 9.0, 1)]) is None


def test_seasons_are_compared_with_themselves_only() -> None:
    wave = [0.0, 10.0, 50.0, 10.0] * 8
    leak = [value + 0.5 * number for number, value in enumerate(wave)]
    for values, expected in ((wave, 0.0), (leak, 0.5)):
        found = slope(cells(values), 4)
        assert found is not None and found.value == expected and found.pairs == 4 * 28
        assert (found.low, found.high) == (expected, expected)
    few = extremes(cells(leak[:8]), 4)
    assert few is not None and (few.value, few.low, few.high, few.pairs) == (0.5, 0.5, 0.5, 4)
    assert extremes(cells([1.0, 2.0]), 4) is None


@pytest.mark.parametrize(("seasons", "turned", "pairs"), [(1, 0, 0), (6, 0, 30), (6, 3, -6)])
def test_seasons_that_change_alike_have_all_of_their_variance_in_common(
    seasons: int, turned: int, pairs: int
) -> None:
    """Pairs count in both orders: of three that rise and three that fall 12 agree, and 18 do not."""
    rises = [3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0]
    given_cells = [
        Cell(day * 6 + season, -value if season < turned else value)
        for day, value in enumerate(rises)
        for season in range(seasons)
    ]
    groups = _groups(given_cells, 6)
    (variance,) = {_variance([group]) for group in groups}
    assert _covariances(groups, 6) == pytest.approx(pairs * variance)


def test_what_hangs_together_widens_the_interval() -> None:
    chance = random.Random(1)
    bound: list[float] = []
    for _ in range(60):
        bound.append(0.95 * bound[-1] + chance.gauss(0, 1) if bound else chance.gauss(0, 1))
    tied, shuffled = slope(cells(bound), 6), slope(cells(random.Random(2).sample(bound, len(bound))), 6)
    assert tied is not None and shuffled is not None
    assert tied.high - tied.low > 1.5 * (shuffled.high - shuffled.low)


@FEW
@given(st.lists(FINITE, min_size=5, max_size=30), st.floats(-100, 100), st.floats(-1e5, 1e5))
def test_a_line_added_is_a_line_found(values: list[float], rate: float, level: float) -> None:
    plain = slope(cells(values))
    tilted = slope(cells([value + level + rate * number for number, value in enumerate(values)]))
    assert plain is not None and tilted is not None
    assert tilted.value == pytest.approx(plain.value + rate, abs=1e-4)


@FEW
@given(st.lists(FINITE, min_size=2, max_size=40), st.sampled_from([None, 1, 3]))
def test_the_slope_lies_within_its_interval(values: list[float], period: int | None) -> None:
    found = slope(cells(values), period)
    if found is not None:
        assert found.low <= found.value <= found.high
