"""Whoever hands a job over waits for a watcher that has seen the start; no other one deceives it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.records import encode_json
from streambank.control.watch import Watcher
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.job.move_records import move_records
from streambank_airflow.watch.event_time import EventTimeWatcher
from streambank_airflow.watch.job import JobWatcher, WatchedView, WatchedWatcher, WatchSigns
from tests.support.jobs.declared import declare

RUN = {"dag_id": "flights.run", "run_id": "manual__1", "task_id": "keep_running"}
FIRST, SECOND = ("run manual__1 of flights.run", "run manual__2 of flights.run")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that was restored and started, after a watcher from before."""
    job = declare(tmp_path)
    records = job.records()
    begun = records.set_desired("running", by=RUN)
    records.watches.begin(by=RUN, desired=begun.number)
    records.set_desired("stopped", by={"dag_id": "flights.restore"})
    records.set_desired("running", by={"dag_id": "flights.restore"})
    return job


def look(job: Job) -> WatchedView:
    return WatchedWatcher(JobWatcher(job)).look()


def newest(records: JobControl) -> int:
    desired = records.desired()
    assert desired is not None
    return desired.number


def test_a_watcher_from_before_the_start_counts_once_it_has_seen_it(job: Job) -> None:
    """One that never ended is no proof: its task may have been marked, and its run be gone."""
    records = job.records()
    assert (look(job).watched, look(job).watcher) == (False, "run manual__1 of flights.run")

    first = records.watches.view()
    assert first is not None
    records.watches.sign(first.watcher, desired=newest(records))

    assert look(job).watched


def test_the_run_that_was_handed_the_job_counts_at_once_and_not_where_it_cannot_act(job: Job) -> None:
    records = job.records()
    records.watches.begin(by={**RUN, "run_id": "manual__2"}, desired=newest(records))
    assert (look(job).watched, look(job).watcher) == (True, "run manual__2 of flights.run")

    watcher = records.watches.view()
    assert watcher is not None
    records.watches.note_idle(watcher, "flights.run is paused")

    assert not look(job).watched


def test_only_one_that_gave_the_job_up_as_it_is_meant_to_be_now_ends_the_wait(job: Job) -> None:
    records = job.records()
    first = records.watches.view()
    assert first is not None
    records.watches.end(first.watcher, "gave-up", "3 drivers ended")
    assert look(job).gave_up is None, "that was before the restore: another one is on its way"

    second = records.watches.begin(by=RUN, desired=newest(records))
    records.watches.end(second, "failed", "its try")
    assert (look(job).watched, look(job).gave_up) == (False, None), "its next try is"

    third = records.watches.begin(by=RUN, desired=newest(records))
    records.watches.end(third, "gave-up", "3 drivers ended")
    assert (look(job).watched, look(job).gave_up) == (False, "3 drivers ended")


def test_a_watcher_follows_records_that_are_moved_while_it_watches(tmp_path: Path) -> None:
    job = declare(tmp_path)
    inside = JobControl.open(f"{job.repository}/jobs", job.name)
    generations = inside.generations()
    generations.ensure_first(job.checkpoint, by=RUN)
    inside.set_desired("stopped", by=RUN)
    watcher = JobWatcher(job)
    seen = EventTimeWatcher.of_job(watcher)
    move_records(job, by=RUN)
    watcher.look()
    assert watcher.control.store.uri == job.records().store.uri != inside.store.uri
    seen.look()
    generation = watcher.control.generation()
    assert generation is not None and generation.number == 1


def test_a_watcher_learns_that_its_record_is_lost_or_another_ones(job: Job) -> None:
    """Its number is given again: it neither takes that one's place nor speaks for it."""
    records = job.records()
    mine = records.watches.begin(by=RUN, desired=newest(records))
    watcher = JobWatcher(job, signs=WatchSigns(mine, every_s=0.0))
    seen = watcher.look()
    assert (seen.replaced_by, seen.watch_lost) == (None, False)

    lose(records, "watch")
    seen = watcher.look()
    assert (seen.replaced_by, seen.watch_lost) == (None, True)
    assert records.watches.view() is None, "it is its task that begins again"

    for _ in range(2):
        other = records.watches.begin(by={**RUN, "run_id": "manual__2"}, desired=newest(records))
    assert other.number == mine.number
    seen = watcher.look()
    assert (seen.replaced_by, seen.watch_lost) == (None, False)
    assert not records.store.exists(records.watches.records.key(other.number, ".beat"))
    records.watches.sign(other, desired=newest(records))
    seen = watcher.look()
    assert (seen.replaced_by, seen.watch_lost) == (SECOND, False)


@dataclass
class Pair:
    """An older watcher that looks again, from a database that came back, and the newer one of the records."""

    job: Job
    newer: Watcher
    signs: WatchSigns
    now_s: float = 0.0

    def look(self, after_s: float = 60.0) -> tuple[str | None, str | None, bool, str]:
        """Who replaces the older one, who may do so, and whether it has to begin again, and why."""
        self.now_s += after_s
        seen = JobWatcher(self.job, signs=self.signs).look()
        return seen.replaced_by, seen.newer_watcher, seen.watch_lost, seen.watch_why

    def sign(self) -> None:
        self.job.records().watches.sign(self.newer, desired=newest(self.job.records()))


@pytest.fixture
def pair(job: Job) -> Pair:
    watches = job.records().watches
    mine = watches.begin(by=RUN, desired=3)
    newer = watches.begin(by={**RUN, "run_id": "manual__2"}, desired=3)
    found = Pair(job, newer, WatchSigns(mine))
    found.signs.clock = lambda: found.now_s
    return found


def test_a_newer_watcher_replaces_an_older_one_once_that_has_seen_its_sign(pair: Pair) -> None:
    """Its last sign may be a minute old, and all that is left of it."""
    pair.sign()
    assert pair.look() == (None, SECOND, False, "")
    assert pair.look(after_s=1.0) == (None, SECOND, False, ""), "also between two signs of the older one"
    pair.sign()
    assert pair.look() == (SECOND, None, False, "")


def test_an_older_one_that_sees_no_sign_for_some_intervals_begins_again(pair: Pair) -> None:
    """By its own clock: that of the newer one may have been ahead."""
    watches = pair.job.records().watches
    ahead = {"id": pair.newer.identity, "at": to_json_time(utc_now() + timedelta(hours=2)), "next_s": 60.0}
    watches.records.store.write(watches.records.key(pair.newer.number, ".beat"), encode_json(ahead))
    assert [pair.look() for _ in range(4)] == [(None, SECOND, False, "")] * 4
    assert pair.look() == (None, None, True, f"Its watcher, {SECOND}, has given no sign for 240 s.")
    gone = JobWatcher(pair.job, signs=pair.signs).look().watch_gone
    assert gone is not None and Watcher(**gone) == pair.newer
    assert watches.begin_again(pair.signs.watcher, by=RUN, desired=3, gone=Watcher(**gone)) is not None


def test_an_older_one_ends_with_the_newer_one_that_has_given_up(pair: Pair) -> None:
    pair.job.records().watches.end(pair.newer, "gave-up", "the checkpoint is damaged")
    assert pair.look() == (f"{SECOND}, which has given it up", None, False, "")


def test_two_processes_that_are_one_watcher_find_each_other(job: Job) -> None:
    """Two Airflows have come from one database: one begins again, and so the other one is replaced."""
    now = [0.0]
    mine = job.records().watches.begin(by=RUN, desired=3)
    one, other = (JobWatcher(job, signs=WatchSigns(mine, clock=lambda: now[0])) for _ in range(2))
    assert not one.look().watch_lost and not other.look().watch_lost, "another triggerer may have gone on"
    now[0] += 60.0
    seen = one.look()
    assert seen.watch_lost and "Another process gives signs as the same run" in seen.watch_why
    assert seen.watch_gone is not None and Watcher(**seen.watch_gone) == mine
    again = job.records().watches.begin_again(mine, by=RUN, desired=3, gone=mine)
    assert again is not None
    seen = other.look()
    assert (seen.replaced_by, seen.newer_watcher, seen.watch_lost) == (None, FIRST, False)
    job.records().watches.sign(again, desired=3)
    now[0] += 60.0
    assert other.look().replaced_by == FIRST


def test_a_triggerer_that_comes_back_goes_on_as_the_same_watcher(job: Job) -> None:
    now = [0.0]
    mine = job.records().watches.begin(by=RUN, desired=3)
    for _ in range(3):  # each a process of its own
        watcher = JobWatcher(job, signs=WatchSigns(mine, clock=lambda: now[0]))
        for _ in range(2):
            now[0] += 60.0
            assert not watcher.look().watch_lost


def test_where_all_records_are_lost_the_state_says_so(job: Job) -> None:
    records = job.records()
    watcher = JobWatcher(job, signs=WatchSigns(records.watches.begin(by=RUN, desired=3), every_s=0.0))
    lose(records, "")
    seen = watcher.look()
    assert (seen.state, seen.down, seen.watch_lost) == ("never-started", True, False)
    assert [*records.store.list("watch")] == [], "nothing is left where the records were"


def lose(records: JobControl, folder: str) -> None:
    for info in [*records.store.list(folder)]:
        records.store.delete(info.path)
