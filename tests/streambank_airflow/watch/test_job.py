"""Whoever hands a job over waits for a watcher that has seen the start; no other one deceives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.declaration.declaration import Job
from streambank.job.move_records import move_records
from streambank_airflow.watch.event_time import EventTimeWatcher
from streambank_airflow.watch.job import JobWatcher, Signs, WatchedView, WatchedWatcher
from tests.support.jobs.declared import declare

RUN = {"dag_id": "flights.run", "run_id": "manual__1", "task_id": "keep_running"}


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
    watcher = JobWatcher(job, signs=Signs(mine, every_s=0.0))
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
    assert (seen.replaced_by, seen.watch_lost) == ("run manual__2 of flights.run", False)
    assert not records.store.exists(records.watches.records.key(other.number, ".beat"))


def test_where_all_records_are_lost_the_state_says_so(job: Job) -> None:
    records = job.records()
    watcher = JobWatcher(job, signs=Signs(records.watches.begin(by=RUN, desired=3), every_s=0.0))
    lose(records, "")
    seen = watcher.look()
    assert (seen.state, seen.down, seen.watch_lost) == ("never-started", True, False)
    assert [*records.store.list("watch")] == [], "nothing is left where the records were"


def lose(records: JobControl, folder: str) -> None:
    for info in [*records.store.list(folder)]:
        records.store.delete(info.path)
