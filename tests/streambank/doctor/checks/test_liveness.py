"""Doctor says that a job is down or unwatched, at the first sight of what is certain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from streambank.control.watch import WatchView
from streambank.core.units import utc_now
from streambank.doctor.checks.liveness import check_life
from streambank.doctor.diagnose import Machine, diagnose_job
from streambank.job.alive import Life
from tests.support.jobs.declared import BY, declare

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def codes(life: Life) -> list[str]:
    return [one.code for one in check_life("flights", life, NOW)]


def test_a_short_outage_is_a_restart_and_a_long_one_an_error() -> None:
    assert codes(Life(True, up=False, down_since=NOW - 4 * MINUTE)) == []
    (found,) = check_life(
        "flights", Life(True, up=False, down_since=NOW - 6 * MINUTE, down_why="It died."), NOW
    )
    assert (found.code, found.severity) == ("not-running", "error")
    assert "for 6 min" in found.cause and found.cause.endswith("It died.")
    assert codes(Life(False, "it is meant to be stopped")) == []


def test_a_missing_sign_has_five_minutes_and_a_paused_dag_none() -> None:
    by = {"dag_id": "flights.run", "run_id": "manual__1"}
    silent = WatchView(1, by, NOW, NOW, 60.0, "watching", 1)
    paused = WatchView(1, by, NOW, NOW, 60.0, "watching", 1, idle={"why": "flights.run is paused"})

    def unwatched(watcher: WatchView, minutes: int) -> Life:
        since = NOW - minutes * MINUTE
        return Life(True, up=True, expected=True, unwatched_since=since, unwatched_why="So.", watcher=watcher)

    assert codes(unwatched(silent, 4)) == []
    assert codes(unwatched(silent, 6)) == codes(unwatched(paused, 0)) == ["not-watched"]
    (found,) = check_life("flights", unwatched(paused, 0), NOW)
    assert found.cause == "Job flights runs, but nothing would restart it. So."
    assert "do not pause flights.run" in found.hint


def test_it_is_said_once_for_a_job_with_its_first_query(tmp_path: Path) -> None:
    job = declare(tmp_path, more='queries = ["left", "right"]')
    job.records().set_desired("running", by=BY)
    later = Machine(clock=lambda: utc_now() + 10 * MINUTE)
    left, right = diagnose_job(job, machine=later)
    assert "not-running" in [one.code for one in left.findings]
    assert "not-running" not in [one.code for one in right.findings]
