"""A watcher that gives signs and cannot act, since its DAG is paused or its run over, is known as such."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streambank.control.records import encode_json
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.doctor.diagnose import diagnose_job
from streambank.job.status import job_status
from streambank.sla.assess import assess_job
from streambank_airflow.watch.paused import is_paused, note_watchers
from streambank_airflow.watch.sla import SlaSubject
from tests.support.jobs.declared import declare

BY = {"dag_id": "flights.run", "run_id": "manual__1", "task_id": "keep_running"}


def context(*, paused: bool = False, state: str | None = "running") -> Any:
    """That of a task, with what Airflow answers."""

    def get_dagrun_state(dag_id: str, run_id: str) -> str:
        assert (dag_id, run_id) == ("flights.run", "manual__1")
        if state is None:
            raise RuntimeError("DAG run not found")
        return state

    task = SimpleNamespace(
        get_dag=lambda dag_id: SimpleNamespace(is_paused=paused), get_dagrun_state=get_dagrun_state
    )
    return {"ti": task}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job that is meant to run, watched by a run of `flights.run`."""
    job = declare(tmp_path)
    records = job.records()
    desired = records.set_desired("running", by=BY)
    records.watches.begin(by=BY, desired=desired.number)
    return job


def why(job: Job) -> str:
    found = assess_job(job).life
    assert found is not None
    return "" if found.watched else found.unwatched_why


def test_a_paused_dag_is_told_by_everything_that_looks_until_it_is_unpaused(job: Job) -> None:
    subject = SlaSubject("flights", job)
    note_watchers(context(), [subject])
    assert why(job) == ""

    note_watchers(context(paused=True), [subject])

    assert why(job) == "Its watcher, run manual__1 of flights.run, cannot act: flights.run is paused."
    watch = job_status(job).watch
    assert watch is not None and (watch.watched, "paused" in watch.why) == (False, True)
    assert "not-watched" in [one.code for one in diagnose_job(job)[0].findings], "at the first sight"

    note_watchers(context(), [subject])
    assert why(job) == ""


class Clock:
    """Time passes while somebody sleeps; what happens meanwhile is done after so many seconds."""

    def __init__(self, patch: pytest.MonkeyPatch, meanwhile: Callable[[], Any], after_s: float) -> None:
        self.now_s = 0.0
        self.after_s = after_s
        self.meanwhile = meanwhile
        patch.setattr("streambank_airflow.watch.paused.time", self)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        if self.now_s < self.after_s <= self.now_s + seconds:
            self.meanwhile()
        self.now_s += seconds


@pytest.fixture
def silent(job: Job) -> Job:
    """The job, whose watcher has left no sign for ten minutes: Airflow was away."""
    watches = job.records().watches
    watcher = watches.view()
    assert watcher is not None
    at = to_json_time(utc_now() - timedelta(minutes=10))
    sign = {"id": watcher.identity, "at": at, "next_s": 60.0, "desired": 1}
    watches.records.store.write(watches.records.key(1, ".beat"), encode_json(sign))
    assert "has given no sign since" in why(job)
    return job


def test_a_sign_that_is_late_after_an_outage_of_airflow_is_waited_for(
    silent: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = silent.records().watches.view()
    assert watcher is not None
    sign = partial(silent.records().watches.sign, watcher.watcher, desired=1)
    clock = Clock(monkeypatch, sign, after_s=40.0)
    note_watchers(context(), [SlaSubject("flights", silent)])
    assert (why(silent), clock.now_s) == ("", 40.0)


@pytest.mark.parametrize(
    ("airflow", "waited_s"),
    [
        (context(), 120.0),
        (context(paused=True), 0.0),
        (context(state="queued"), 0.0),
        (context(state="success"), 0.0),
        (context(state=None), 0.0),
    ],
)
def test_a_sign_is_waited_for_no_longer_than_it_may_take_and_only_of_a_run_that_goes_on(
    silent: Job, monkeypatch: pytest.MonkeyPatch, airflow: Any, waited_s: float
) -> None:
    clock = Clock(monkeypatch, lambda: None, after_s=0.0)
    note_watchers(airflow, [SlaSubject("flights", silent)])
    assert (clock.now_s, why(silent) != "") == (waited_s, True)


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_run_that_was_marked_watches_no_more(job: Job, state: str) -> None:
    note_watchers(context(state=state), [SlaSubject("flights", job)])
    assert why(job).endswith(f"cannot act: its run is over ({state}).")


def test_a_run_that_this_airflow_does_not_know_is_left_alone(job: Job) -> None:
    note_watchers(context(paused=True, state=None), [SlaSubject("flights", job)])
    assert why(job) == "", "it may be another Airflow's, whose DAG has the same name"
    assert is_paused({"ti": SimpleNamespace()}, "flights.run") is None  # type: ignore[typeddict-item]  # an older Airflow
