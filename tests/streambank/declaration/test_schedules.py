"""How far the runs of a schedule are apart at most."""

from __future__ import annotations

import pytest

from streambank.declaration.savepoints import parse_blackout
from streambank.declaration.schedules import longest_gap_s

HOUR = 3600.0


@pytest.mark.parametrize(
    ("schedule", "hours"),
    [
        ("@hourly", 1),
        ("*/10 * * * *", 1 / 6),
        ("0 3 * * *", 24),
        ("0 8,12,20 * * *", 12),
        ("0 8 * * 1-5", 72),
        ("0 8 * * mon-fri", 72),
        ("@weekly", 168),
        ("0 0 1,15 * *", 17 * 24),
        ("30 4 1 * sun", 168),
        ("0 0 * * 7", 168),
        ("@monthly", 31 * 24),
    ],
)
def test_the_longest_pause_counts(schedule: str, hours: float) -> None:
    assert longest_gap_s(schedule) == pytest.approx(hours * HOUR)


def test_windows_without_runs_count_by_the_clocks_of_their_zone() -> None:
    night = parse_blackout("22:00-06:00")
    assert night is not None
    assert longest_gap_s("@hourly", (night,)) == 9 * HOUR
    assert longest_gap_s("@hourly", (night,), "Europe/Berlin") == 10 * HOUR, "in summer or in winter"
    assert longest_gap_s("@hourly", (night,), "Europe/Berlin", "Europe/Berlin") == 10 * HOUR, "in autumn"
    all_day = parse_blackout("00:00-24:00")
    assert all_day is not None and longest_gap_s("@hourly", (all_day,)) is None


@pytest.mark.parametrize(
    ("schedule", "zone", "hours"),
    [
        ("0 3 * * *", "Europe/Berlin", 25),
        ("0 8,20 * * *", "Australia/Lord_Howe", 12.5),
        ("0 3 * * *", "Asia/Kolkata", 24),
        ("*/10 * * * *", "Europe/Berlin", 1 / 6),
        ("@hourly", "Europe/Berlin", 1),
    ],
)
def test_the_hour_that_comes_twice_makes_a_pause_longer(schedule: str, zone: str, hours: float) -> None:
    assert longest_gap_s(schedule, zone=zone) == pytest.approx(hours * HOUR)


@pytest.mark.parametrize(
    "schedule", ["0 0 L * *", "0 0 * * 5#3", "@once", "@continuous", "0 0 31 2 *", "61 * * * *"]
)
def test_what_is_not_understood_gives_no_limit(schedule: str) -> None:
    assert longest_gap_s(schedule) is None
