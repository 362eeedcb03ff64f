"""One step is a step; a habit, an outlier, or something that has not come to rest is none."""

from __future__ import annotations

import pytest

from streambank.sla.growth.forecast import only_step
from streambank.sla.growth.slope import Cell


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
