from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from streambank_airflow.operators.blackout import SkipInBlackoutOperator


def run(
    monkeypatch: pytest.MonkeyPatch, at: str, run_type: str, *windows: str, time_zone: str = "UTC"
) -> None:
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
    monkeypatch.setattr("streambank_airflow.operators.blackout.utc_now", lambda: moment)
    context: Any = {"dag_run": SimpleNamespace(run_type=run_type)}
    SkipInBlackoutOperator(task_id="blackout", windows=windows, time_zone=time_zone).execute(context)


@pytest.mark.parametrize(
    ("at", "time_zone", "skipped"),
    [
        ("2026-01-10T22:00", "UTC", True),
        ("2026-01-10T21:59", "UTC", False),
        ("2026-01-11T05:59", "UTC", True),
        ("2026-01-11T06:00", "UTC", False),
        ("2026-01-10T12:30", "UTC", True),
        ("2026-01-10T21:00", "Europe/Berlin", True),
        ("2026-07-10T20:00", "Europe/Berlin", True),
        ("2026-01-10T20:00", "Europe/Berlin", False),
    ],
)
def test_a_scheduled_run_is_skipped_by_the_clock_of_the_named_zone(
    monkeypatch: pytest.MonkeyPatch, at: str, time_zone: str, skipped: bool
) -> None:
    windows = ("12:00-13:00", "22:00-06:00")
    if skipped:
        with pytest.raises(AirflowSkipException, match=rf"in {time_zone}, within the blackout .*by hand"):
            run(monkeypatch, at, "scheduled", *windows, time_zone=time_zone)
    else:
        run(monkeypatch, at, "scheduled", *windows, time_zone=time_zone)


def test_what_a_person_asks_for_is_done_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "2026-01-10T23:00", "manual", "22:00-06:00")


def test_a_time_zone_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match=r"(?s)not a time zone.*Did you mean Europe/Berlin\?"):
        run(monkeypatch, "2026-01-10T23:00", "scheduled", "22:00-06:00", time_zone="Europe/Berln")


def test_a_window_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match="is not a daily window"):
        run(monkeypatch, "2026-01-10T23:00", "scheduled", "25:00-06:00")


def test_no_window_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AirflowFailException, match="names no blackout window"):
        run(monkeypatch, "2026-01-10T23:00", "scheduled")
