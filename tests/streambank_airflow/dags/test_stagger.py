from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pendulum
import pytest
from airflow.timetables.base import TimeRestriction
from airflow.timetables.trigger import CronTriggerTimetable

from streambank.declaration.load import load_jobs
from streambank_airflow.dags.stagger import staggered, unshifted_alone

QUARTER_S = 900.0


def times(schedule: str, count: int) -> list[datetime]:
    """The first times of a schedule in a year, as Airflow itself reads it."""
    timetable = CronTriggerTimetable(schedule, timezone="UTC")
    found: list[datetime] = []
    earliest = pendulum.datetime(2026, 1, 1)
    while len(found) < count:
        restriction = TimeRestriction(earliest=earliest, latest=None, catchup=True)
        info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
        assert info is not None
        found.append(info.run_after)
        earliest = info.run_after.add(seconds=1)
    return found


@pytest.mark.parametrize(
    "schedule",
    ["*/15 * * * *", "@hourly", "@daily", "@weekly", "@monthly", "@yearly", "30 2 * * 1-5", "5,35 */2 * * *"],
)
def test_no_run_is_lost_early_or_later_than_the_window(schedule: str) -> None:
    for number in range(20):
        for declared, shifted in zip(
            times(schedule, 30), times(staggered(schedule, f"job{number}", QUARTER_S), 30), strict=True
        ):
            assert timedelta(0) <= shifted - declared < timedelta(seconds=QUARTER_S)


def test_a_hundred_jobs_do_not_start_at_once_and_each_keeps_its_minute() -> None:
    names = [f"job{number}" for number in range(100)]
    schedules = [staggered("@hourly", name, QUARTER_S) for name in names]

    starts = Counter(times(schedule, 1)[0] for schedule in schedules)
    assert len(starts) == 15
    assert max(starts.values()) <= 15
    assert schedules == [staggered("@hourly", name, QUARTER_S) for name in names]


def test_runs_close_together_stay_in_their_order() -> None:
    found = {staggered("*/2 * * * *", f"job{number}", QUARTER_S) for number in range(20)}

    odd = ",".join(str(minute) for minute in range(1, 60, 2))
    assert found == {"*/2 * * * *", f"{odd} * * * *"}


def test_nobody_is_shifted_into_a_window_that_begins_later() -> None:
    names = [f"job{number}" for number in range(40)]
    assert {staggered("0 6 * * *", name, QUARTER_S, [5]) for name in names} == {
        f"{minute} 6 * * *" for minute in range(5)
    }
    assert {staggered("0,30 * * * *", name, QUARTER_S, [32]) for name in names} == {
        "0,30 * * * *",
        "1,31 * * * *",
    }
    assert (
        len({staggered("10 6 * * *", name, QUARTER_S, [0, 5, 10]) for name in names}) > 10
    )  # it began before


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "59 3 * * *",
        "@once",
        "@continuous",
        "H * * * *",
        "*/15 * * *",
        "0 0 0 * * *",
        "5-70 * * * *",
    ],
)
def test_what_cannot_be_shifted_stays_as_it_is(schedule: str) -> None:
    assert {staggered(schedule, f"job{number}", QUARTER_S) for number in range(20)} == {schedule}


@pytest.mark.parametrize(
    ("schedule", "zones", "shifted"),
    [
        ("0 3 * * *", ("Europe/Berlin", "Europe/Berlin"), True),
        ("0 3 * * *", ("Europe/Berlin", "Asia/Tokyo"), False),
        ("0 3 * * *", ("UTC", None), True),
        ("@daily", ("Europe/Berlin", None), False),
        ("@hourly", ("Europe/Berlin", None), True),  # at the same moments, whatever the clocks say
    ],
)
def test_only_schedules_of_the_same_clocks_are_spread(
    tmp_path: Path, schedule: str, zones: tuple[str | None, ...], shifted: bool
) -> None:
    text = 'repository = "r"\n'
    for number, zone in enumerate(zones):
        text += f'[jobs.j{number}]\napplication = "a.py"\ncheckpoint = "c{number}"\n'
        text += f'time_zone = "{zone}"\n' if zone else ""
        text += f'sla.schedule = "never"\nsavepoint.schedule = "{schedule}"\n'
    file = tmp_path / "jobs.toml"
    file.write_text(text, encoding="utf-8")
    jobs = load_jobs(file).jobs.values()
    assert {unshifted_alone(job, jobs).savepoint.stagger_s > 0 for job in jobs} == {shifted}
