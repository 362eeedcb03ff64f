"""A job that is meant to run and does not, or that nothing would restart, is known as such; and no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId, this_process
from streambank.control.watch import Watcher, WatcherState
from streambank.core.units import to_json_time
from streambank.job.alive import Life, job_life
from tests.support.jobs.declared import ELSEWHERE
from tests.support.storage.faulty_store import FaultyStore
from tests.support.waiting import FakeClock

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BY_RUN = {"dag_id": "flights.run", "run_id": "manual__1"}
IDLE = {"main": {"triggered": True, "batch": -1}}
DONE = {"main": {"triggered": True, "batch": 7}}
NOTHING = {"main": {"triggered": False, "batch": -1}}


def at(minute: float) -> datetime:
    return NOW + timedelta(minutes=minute)


def desire(control: JobControl, minute: float, state: str = "running", **by: str) -> int:
    return control.desired_records.append({"state": state, "at": to_json_time(at(minute)), "by": by})


def driver(
    control: JobControl,
    begin: float,
    seen: float | None,
    queries: dict[str, Any],
    *,
    lives: bool = False,
    end: dict[str, Any] | None = None,
    elsewhere: bool = False,
) -> int:
    """One driver: a living one is this process, a dead one none."""
    process = this_process("python") if lives else ProcessId("python", 2**22 - 9, 1)
    host = ELSEWHERE if elsewhere else control.here
    records = control.lease.claims.records
    number = records.append(
        {
            "at": to_json_time(at(begin)),
            "purpose": "run",
            "launch_id": f"launch-{begin}",
            **host.to_dict(),
            "processes": [process.to_dict()],
            "beat_s": 1.0,
            "ttl_s": 30.0,
        }
    )
    if seen is not None:
        beat = {"beat": 1, "at": to_json_time(at(seen)), "status": {"queries": queries, "still_s": 0.0}}
        records.create(number, beat, suffix=".beat")
    if end is not None:
        records.create(number, {"at": to_json_time(at(end.pop("minute"))), **end}, suffix=".end")
    return number


def life(control: JobControl, minute: float = 0.0) -> Life:
    return job_life(control, at(minute), queries=("main",), settle=False)


def watch(control: JobControl, desired: int, minute: float, **sign: Any) -> Watcher:
    """A watcher whose last sign was then."""
    watcher = control.watches.begin(by=BY_RUN, desired=desired)
    known = {"id": watcher.identity, "desired": desired}
    data = {**known, "at": to_json_time(at(minute)), "next_s": 60.0, **sign}
    control.store.write(control.watches.records.key(watcher.number, ".beat"), _json(data))
    return watcher


def _json(data: dict[str, Any]) -> bytes:
    from streambank.control.records import encode_json

    return encode_json(data)


def test_a_job_that_is_not_meant_to_run_is_well_without_a_driver(control: JobControl) -> None:
    assert (life(control).desired, life(control).up) == (False, False)
    desire(control, -60, **BY_RUN)
    driver(control, -60, -30, DONE)
    desire(control, -10, "stopped")
    found = life(control)
    assert not found.desired and "stopped" in found.why_not
    assert (found.down_since, found.unwatched_since) == (None, None)


def test_a_driver_that_died_is_missed_from_its_last_heartbeat(control: JobControl) -> None:
    desire(control, -600)
    driver(control, -600, -7, DONE)
    found = life(control)
    assert (found.up, found.down_since, found.down_s(NOW)) == (False, at(-7), 420.0)
    assert "epoch 1" in found.down_why
    driver(control, -0.5, 0, NOTHING, lives=True)
    assert life(control).up is True, "its successor may take its time over its first batch"


def test_one_that_nobody_ever_started_is_missed_since_it_was_asked_for(control: JobControl) -> None:
    desire(control, -8)
    found = life(control)
    assert found.down_since == at(-8) and "no driver has started" in found.down_why
    # A cluster without room may need as long as a start is given.
    assert job_life(control, NOW, queries=("main",), start_s=1200.0).down_since is None
    assert job_life(control, NOW, queries=("main",), start_s=420.0).down_since == at(-8)


@pytest.mark.parametrize("dies_with", [None, {"minute": -1.0, "how": "released", "exit_code": 1}])
def test_drivers_that_die_before_a_batch_do_not_end_an_outage(
    control: JobControl, dies_with: dict[str, Any] | None
) -> None:
    desire(control, -600)
    driver(control, -600, -20, DONE)
    for begin in (-15, -10, -5):
        driver(control, begin, begin + 1, NOTHING)
    driver(control, -2, -1, IDLE, end=dies_with)
    found = life(control)
    assert (found.up, found.down_since) == (False, at(-20))
    assert "4 drivers ended before a first batch" in found.down_why
    driver(control, -0.5, 0, NOTHING, lives=True)
    found = life(control)
    assert (found.up, found.down_since) == (False, at(-20)), "a driver lives, as often before"
    control.store.write(
        "lease/0000000006.beat.json", _json({"at": to_json_time(NOW), "status": {"queries": DONE}})
    )
    assert life(control).up is True


def test_drivers_that_never_get_the_lease_count_as_well(control: JobControl) -> None:
    desire(control, -600)
    driver(control, -600, -20, DONE)
    for minute in (-15, -5):
        control.event_records.append(
            {"kind": "driver-died", "launch_id": f"early {minute}", "at": to_json_time(at(minute))}
        )
    found = life(control)
    assert found.down_since == at(-20) and "2 drivers ended" in found.down_why
    assert [one.at for one in found.failures] == [at(-20), at(-15), at(-5)]


def test_an_idle_driver_that_lived_for_long_has_worked(control: JobControl) -> None:
    desire(control, -600)
    driver(control, -600, -4, IDLE)
    assert life(control).down_since == at(-4)


def test_an_application_that_ran_to_its_end_is_no_outage(control: JobControl) -> None:
    desire(control, -600)
    ended = {"minute": -400.0, "how": "released", "exit_code": 0}
    driver(control, -600, -400, DONE, end=ended)
    found = life(control)
    assert (found.desired, found.finished, found.failures) == (False, True, ())
    control.event_records.append({"kind": "stop-asked", "epoch": 1, "at": to_json_time(at(-401))})
    found = life(control)
    assert (found.desired, found.down_since) == (True, at(-400)), (
        "it was stopped, and nobody started it again"
    )


def test_a_driver_elsewhere_is_judged_by_the_age_of_its_heartbeat_and_then_watched(
    control: JobControl,
) -> None:
    desire(control, -600)
    driver(control, -600, -1, DONE, elsewhere=True)
    assert life(control).up is True
    assert life(control, 5).up is None, "clocks may differ"
    patient = JobControl(control.store, "flights", clock=FakeClock())  # type: ignore[arg-type]
    found = job_life(patient, at(5), queries=("main",))
    assert (found.up, found.down_since) == (False, at(-1))


def test_a_heartbeat_from_the_future_is_watched_like_an_old_one(control: JobControl) -> None:
    """The clock of the driver's host is hours ahead: that must not keep it alive for hours."""
    desire(control, -600)
    driver(control, -600, 120, DONE, elsewhere=True)
    assert life(control).up is None
    patient = JobControl(control.store, "flights", clock=FakeClock())  # type: ignore[arg-type]
    assert job_life(patient, at(0), queries=("main",)).up is False
    driver(control, -1, 0.5, DONE, elsewhere=True)
    assert life(control).up is True, "clocks differ by seconds"


def test_restarts_in_a_day_are_those_that_nobody_asked_for(control: JobControl) -> None:
    desire(control, -600)
    driver(control, -600, -500, DONE)
    asked = driver(control, -500, -400, DONE)
    control.event_records.append(
        {"kind": "stopped", "epoch": asked, "how": "killed", "at": to_json_time(NOW)}
    )
    driver(control, -400, -300, DONE, end={"minute": -300.0, "how": "released", "exit_code": 1})
    driver(control, -300, -200, DONE, end={"minute": -200.0, "how": "released", "exit_code": 0})
    for cause in ({"cause": "health"}, {}):
        control.event_records.append({"kind": "restarted", "epoch": 5, "at": to_json_time(at(-100)), **cause})
    driver(control, -100, 0, DONE, lives=True)
    found = life(control)
    assert [one.at for one in found.failures] == [at(-500), at(-300), at(-100)]
    assert [one.what for one in found.failures] == [
        "its driver died", "its driver ended with exit code 1", "it was restarted for health",
    ]  # fmt: skip


# Who watches.


def test_what_was_started_by_hand_is_not_expected_to_be_watched(control: JobControl) -> None:
    desire(control, -600, user="ann", via="cli")
    driver(control, -600, 0, DONE, lives=True)
    found = life(control)
    assert (found.up, found.expected, found.watched, found.unwatched_since) == (True, False, False, None)


@pytest.mark.parametrize("verb", ["run", "restore", "compact", "rescale", "failover"])
def test_what_a_dag_of_the_job_started_is_expected_to_be_watched(control: JobControl, verb: str) -> None:
    desire(control, -10, dag_id=f"flights.{verb}")
    driver(control, -10, 0, DONE, lives=True)
    found = life(control)
    assert (found.expected, found.watched, found.unwatched_since) == (True, False, at(-8))


def due(control: JobControl) -> datetime | None:
    """When the watcher was due that is missing; None where it is not, or its time has not come."""
    found = job_life(control, NOW, queries=("main",), settle=False, start_s=300.0)
    assert (found.expected, found.watched) == (True, False)
    assert (found.unwatched_since is None) == (found.unwatched_why == "")
    return found.unwatched_since


def first_trigger(control: JobControl, minute: float, launch_id: str) -> None:
    control.event_records.append(
        {"kind": "first-trigger", "launch_id": launch_id, "at": to_json_time(at(minute))}
    )


@pytest.mark.parametrize("verb", ["run", "restore", "failover", "compact"])
def test_a_watcher_comes_soon_after_the_driver_is_ready(control: JobControl, verb: str) -> None:
    """However long a start may take: this one is over."""
    desire(control, -4.5, dag_id=f"flights.{verb}")
    epoch = driver(control, -4, 0, NOTHING, lives=True)
    assert due(control) is None, "its start waits for the first batch"

    says = {"at": to_json_time(NOW), "status": {"queries": DONE}}
    control.store.write(f"lease/{epoch:010d}.beat.json", _json(says))
    first_trigger(control, -1.9, "launch--4")
    assert due(control) is None, "a run was triggered just now, and comes"

    first_trigger(control, -1, "another")
    control.event_records.append({"kind": "savepoint-taken", "at": to_json_time(NOW)})
    found = job_life(control, at(2), queries=("main",), settle=False, start_s=300.0)
    assert found.unwatched_since == at(0.1), "and has not come"


def test_what_is_meant_to_run_and_has_no_driver_is_watched_when_its_start_is_over(
    control: JobControl,
) -> None:
    desire(control, -6.5, dag_id="flights.restore")
    driver(control, -30, -7, DONE)
    assert due(control) is None, "a cluster without room may need as long as a start is given"
    driver(control, -6, -3, DONE)
    assert due(control) == at(-1), "a driver came, and is gone: no start is on its way any more"


def test_a_watcher_that_is_silent_since_before_the_start_is_not_the_one_that_is_missed(
    control: JobControl,
) -> None:
    """Its run was killed with its Airflow, say: the next one is due when the start is over."""
    watch(control, desire(control, -600, dag_id="flights.run"), -30)
    desire(control, -20, "stopped")
    desire(control, -4, dag_id="flights.run")
    driver(control, -3, 0, IDLE, lives=True)
    first_trigger(control, -1.5, "launch--3")
    assert due(control) is None
    found = job_life(control, at(2), queries=("main",), settle=False, start_s=300.0)
    assert (found.unwatched_since, found.unwatched_why) == (
        at(0.5),
        "Nothing has watched it since it was started.",
    )


def test_how_many_events_are_read_of_a_driver_that_has_long_been_ready_is_bounded(
    control: JobControl,
) -> None:
    desire(control, -600, dag_id="flights.restore")
    driver(control, -600, 0, DONE, lives=True)
    for _ in range(300):
        control.event_records.append({"kind": "savepoint-taken", "at": to_json_time(NOW)})
    store = FaultyStore(control.store)
    seen = job_life(
        JobControl(store, "flights"), NOW, queries=("main",), settle=False, start_s=300.0, failures=False
    )
    assert seen.unwatched_since == at(-598)
    assert sum(call.key.startswith("events/") for call in store.calls) <= 51


def test_a_watcher_that_gives_no_more_signs_is_missed_when_the_next_one_was_due(control: JobControl) -> None:
    number = desire(control, -600, user="ann")
    driver(control, -600, 0, DONE, lives=True)
    watch(control, number, -2)
    assert (life(control).watched, life(control).unwatched_since) == (True, None), "a minute late is no gap"
    watch(control, number, -9)
    found = life(control)
    assert (found.expected, found.watched, found.unwatched_since) == (True, False, at(-8))
    assert found.unwatched_why == (
        "Its watcher, run manual__1 of flights.run, has given no sign since 2026-11-23T11:51:00.000Z."
    )
    watch(control, number, -9, next_s=600.0, doing="pausing")
    assert life(control).watched, "it said that it waits before the next start"


def test_a_watcher_that_ended_although_the_job_is_meant_to_run_is_missed(control: JobControl) -> None:
    number = desire(control, -600, user="ann")
    driver(control, -600, 0, DONE, lives=True)
    mine = watch(control, number, 0)
    control.watches.end(mine, "gave-up", "3 drivers in a row ended")
    found = life(control)
    assert not found.watched and found.unwatched_since is not None
    assert "ended (gave-up: 3 drivers in a row ended)" in found.unwatched_why


def test_a_stop_ends_the_watching_and_a_start_by_hand_expects_none(control: JobControl) -> None:
    number = desire(control, -600, dag_id="flights.run")
    watch(control, number, -100)
    desire(control, -99, "stopped")
    assert life(control).unwatched_since is None
    desire(control, -50, user="ann", via="cli")
    driver(control, -50, 0, DONE, lives=True)
    assert not life(control).expected


def test_a_watcher_whose_dag_is_paused_gives_signs_and_watches_nothing(control: JobControl) -> None:
    number = desire(control, -600, dag_id="flights.run")
    driver(control, -600, 0, DONE, lives=True)
    watch(control, number, 0)
    view = control.watches.view()
    assert view is not None and life(control).watched
    control.watches.note_idle(view, "flights.run is paused")
    found = life(control)
    assert not found.watched and found.unwatched_since is not None
    assert found.unwatched_why.endswith("cannot act: flights.run is paused.")
    view = control.watches.view()
    assert view is not None
    control.watches.note_idle(view, None)
    assert life(control).watched


def test_of_two_watchers_the_newer_one_counts_and_the_older_one_learns_it(control: JobControl) -> None:
    older = control.watches.begin(by=BY_RUN, desired=1)
    assert control.watches.sign(older, desired=1) == WatcherState()
    newer = control.watches.begin(by={"dag_id": "flights.run", "run_id": "manual__2"}, desired=1)
    assert control.watches.sign(older, desired=1).replaced_by == "run manual__2 of flights.run"
    assert control.watches.sign(newer, desired=1) == WatcherState()
    assert control.watches.end(older, "replaced") and not control.watches.end(older, "stopped")
    view = control.watches.view()
    assert view is not None and (view.watcher, view.end) == (newer, {})
    assert len(control.watches.records.numbers()) == 2
