"""How far the runs of a schedule are apart, as far as a limit rests on it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise

from streambank.core.json_text import is_whole_number
from streambank.core.zones import UTC_NAME, time_zone
from streambank.declaration.savepoints import Blackout

PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
}
"""Airflow's presets as cron expressions."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_BEGIN, _HORIZON = date(2024, 1, 1), 4 * 366
_DAY_MINUTES = 24 * 60
_HOUR_S = 3600.0


@lru_cache(maxsize=256)
def longest_gap_s(
    schedule: str, blackout: Sequence[Blackout] = (), blackout_zone: str = UTC_NAME, zone: str = UTC_NAME
) -> float | None:
    """The longest time between two runs of a schedule, in seconds.

    Args:
        zone: By whose clocks the schedule is. Where an hour comes twice there, a pause of hours is longer.

    Returns:
        None for a schedule that is not understood (names such as `L` or `#`), or never runs.
    """
    fields = PRESETS.get(schedule.strip(), schedule).lower().split()
    if len(fields) != 5:
        return None
    minutes, hours = _numbers(fields[0], 0, 59), _numbers(fields[1], 0, 23)
    days = _numbers(fields[2], 1, 31)
    months = _numbers(fields[3], 1, 12, _MONTHS, first=1)
    weekdays = _numbers(fields[4], 0, 7, _DAYS)
    if None in (minutes, hours, days, months, weekdays):
        return None
    assert minutes is not None and hours is not None and days is not None
    assert months is not None and weekdays is not None
    skipped = _skipped(blackout, blackout_zone, zone)
    times = sorted(
        moment for hour in hours for minute in minutes if (moment := hour * 60 + minute) not in skipped
    )
    if not times:
        return None
    gap_days = 1
    if (fields[2], fields[3], fields[4]) != ("*", "*", "*"):
        either = not (fields[2].startswith("*") or fields[4].startswith("*"))
        found = _days(days, months, {day % 7 for day in weekdays}, either=either)
        if len(found) < 2:
            return None
        gap_days = max(later - earlier for earlier, later in pairwise(found))
    overnight = gap_days * _DAY_MINUTES + times[0] - times[-1]
    gap_s = 60.0 * max(overnight, *(later - earlier for earlier, later in pairwise(times)), 0)
    return gap_s if gap_s <= _HOUR_S else gap_s + _clock_change_s(zone)


def _days(days: set[int], months: set[int], weekdays: set[int], *, either: bool) -> list[int]:
    """The days on which a schedule runs, counted from some day on.

    Args:
        weekdays: Days of the week, from Sunday.
        either: Whether a day of the month or a day of the week is enough, as where cron names both.
    """
    found = []
    for number in range(_HORIZON):
        day = _BEGIN + timedelta(days=number)
        of_month, of_week = day.day in days, day.isoweekday() % 7 in weekdays
        if day.month in months and ((of_month or of_week) if either else (of_month and of_week)):
            found.append(number)
    return found


def _clock_change_s(zone: str) -> float:
    """By how many seconds the clocks of a zone are set back when a summer ends; 0 where they never are."""
    clock = time_zone(zone)
    noons = [datetime.combine(_BEGIN + timedelta(days=day), time(12), clock) for day in range(366)]
    offsets = [noon.utcoffset() or timedelta(0) for noon in noons]
    return (max(offsets) - min(offsets)).total_seconds()


def _skipped(blackout: Sequence[Blackout], blackout_zone: str, zone: str) -> set[int]:
    """Minutes of the day, by the clocks of `zone`, that lie in a window in summer or in winter."""
    if not blackout:
        return set()
    clock, windows = time_zone(zone), time_zone(blackout_zone)
    found = set()
    for minute in range(_DAY_MINUTES):
        moment = time(minute // 60, minute % 60)
        for month in (1, 7):
            local = datetime.combine(date(2024, month, 1), moment, clock).astimezone(windows).time()
            if any(window.holds(local) for window in blackout):
                found.add(minute)
    return found


def _numbers(
    field: str, least: int, most: int, names: Sequence[str] = (), *, first: int = 0
) -> set[int] | None:
    """What a field of cron names; None where it is not understood."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        if step and not (is_whole_number(step) and int(step) > 0):
            return None
        begin, dash, end = span.partition("-")
        if span == "*":
            low, high = least, most
        else:
            bounds = [_number(text, names, first) for text in ((begin, end) if dash else (begin,))]
            if None in bounds:
                return None
            known = [one for one in bounds if one is not None]
            low, high = known[0], known[-1] if dash or not step else most
        if not least <= low <= high <= most:
            return None
        found.update(range(low, high + 1, int(step or 1)))
    return found


def _number(text: str, names: Sequence[str], first: int) -> int | None:
    if text in names:
        return names.index(text) + first
    return int(text) if is_whole_number(text) else None
