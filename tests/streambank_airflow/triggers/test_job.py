from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.base import BaseTrigger

from streambank.core.errors import FormatError, StorageError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.load import load_jobs
from streambank_airflow.hooks.watchers import Watchers
from streambank_airflow.triggers.base import PATIENCE, JobTrigger
from streambank_airflow.triggers.job import (
    BatchCommittedTrigger,
    DriverGoneTrigger,
    DriverStaysTrigger,
    JobEndTrigger,
    JobReadyTrigger,
    JobWatchedTrigger,
    PauseTrigger,
)
from streambank_airflow.watch.job import JobView, WatchedView

LATER = to_json_time(utc_now() + timedelta(hours=1))
EARLIER = to_json_time(utc_now() - timedelta(hours=1))
WATCH: dict[str, Any] = {"job": "flights", "jobs_file": "/dags/streaming_jobs.toml", "watch": 3}


def view(state: str = "running", **facts: Any) -> JobView:
    return JobView(job="flights", state=state, why="because", **facts)


def judged(trigger: JobTrigger, seen: JobView) -> str | None:
    event = trigger.judge(seen)
    return None if event is None else str(event["status"])


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (view(), None),
        (view("starting"), None),
        (view(triggered=True), "ready"),
        (view("failed"), "gone"),
        (view("stopped"), "gone"),
        (view("failed", operation="start"), None),
    ],
)
def test_ready_is_the_first_trigger_of_a_driver_that_lives(seen: JobView, status: str | None) -> None:
    assert judged(JobReadyTrigger(job="flights", give_up_at=LATER), seen) == status


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({}, None),
        ({"state": "stopping"}, None),
        ({"state": "failed", "operation": "restart"}, None),
        ({"health": "unhealthy"}, "changed"),
        ({"launch_id": "other"}, "changed"),
        ({"state": "failed"}, "changed"),
        ({"state": "stopping", "desired": "stopped"}, "changed"),
    ],
)
def test_a_driver_stays_unless_somebody_has_to_look_at_it(facts: dict[str, Any], status: str | None) -> None:
    seen = view(**{"state": "running", "launch_id": "mine", **facts})
    for until, then in ((LATER, status), (EARLIER, status or "late")):
        trigger = DriverStaysTrigger(job="flights", launch_id="mine", give_up_at=until)
        assert judged(trigger, seen) == then


def test_a_watch_ends_where_somebody_else_watches() -> None:
    trigger = JobEndTrigger(job="flights", watch=1)
    assert judged(trigger, view(replaced_by="run 2 of flights.run")) == "replaced"
    assert judged(trigger, view("failed", replaced_by="run 2 of flights.run")) == "replaced"


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (view(newer_watcher="run 2", desired="running"), None),
        (view("failed", newer_watcher="run 2", desired="running"), None),
        (view(newer_watcher="run 2", desired="running", health="unhealthy"), None),
        (view("stopped", newer_watcher="run 2", desired="stopped"), "stopped"),
        (view("failed", watch_lost=True, watch_why="It is silent.", desired="running"), "gone"),
    ],
)
def test_what_may_be_for_a_newer_watcher_is_left_to_it_until_that_is_known(
    seen: JobView, status: str | None
) -> None:
    assert judged(JobEndTrigger(job="flights", watch=1, heal=True), seen) == status


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (view(watch_lost=True, desired="running"), "unsigned"),
        (view(watch_lost=True, desired="running", operation="restore"), "unsigned"),
        (view("stopped", watch_lost=True, desired="stopped"), "stopped"),
        (view("stopping", watch_lost=True, desired="stopped"), None),
        (view("failed", watch_lost=True, desired="running"), "gone"),
    ],
)
def test_a_watch_whose_record_is_lost_goes_back_to_its_task(seen: JobView, status: str) -> None:
    """The task knows who it is, and begins to watch again; what else it has to do it does as well."""
    assert judged(JobEndTrigger(job="flights", watch=1, watch_id="5e0c"), seen) == status


def test_a_watch_of_the_version_before_has_no_identity_and_goes_on() -> None:
    arguments = JobEndTrigger(watch_id="5e0c", **WATCH).serialize()[1]
    del arguments["watch_id"]  # as that version has stored it
    again = JobEndTrigger(**arguments)
    assert (again.watch, again.watch_id) == (3, None)
    assert judged(again, view()) is None


def test_a_wait_that_leaves_no_signs_ends_at_once() -> None:
    """It was stored by a version whose watchers left none: its task becomes one that does."""
    for seen in (view(), view("failed", desired="running"), view("stopped", desired="stopped")):
        assert judged(JobEndTrigger(job="flights"), seen) == "unsigned"


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({}, None),
        ({"watched": True}, "watched"),
        ({"desired": "stopped"}, "stopped"),
        ({"gave_up": "3 drivers ended"}, "ended"),
        ({"state": "stopped", "finished": True}, "finished"),
    ],
)
def test_a_job_is_handed_over_when_it_is_watched(facts: dict[str, Any], status: str | None) -> None:
    seen = WatchedView(**{"job": "flights", "state": "running", **facts})
    assert judged(JobWatchedTrigger(job="flights", give_up_at=LATER), seen) == status
    assert judged(JobWatchedTrigger(job="flights", give_up_at=EARLIER), seen) == (status or "late")


def test_at_the_end_of_its_time_queries_that_are_under_way_are_ready() -> None:
    """A plain start is content then with an application that still starts something."""
    assert judged(JobReadyTrigger(job="flights", give_up_at=EARLIER), view()) == "late"
    seen = view(under_way=True)
    assert judged(JobReadyTrigger(job="flights", give_up_at=LATER), seen) is None
    assert judged(JobReadyTrigger(job="flights", give_up_at=EARLIER), seen) == "ready"


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (view(), None),
        (view("unknown"), None),
        (view("stopping", desired="stopped"), None),
        (view("stopped", desired="stopped"), "stopped"),
        (view("failed", desired="stopped"), "stopped"),
        (view("failed", desired="running"), "gone"),
        (view("stopped", desired="running"), "gone"),
        (view("stopped", desired="running", finished=True), "finished"),
        (view("failed", desired="running", operation="restore"), None),
        (view("stopped", desired="stopped", operation="restore"), None),
    ],
)
def test_an_end_is_judged_by_what_is_meant_to_be_and_never_while_somebody_works_on_the_job(
    seen: JobView, status: str | None
) -> None:
    assert judged(JobEndTrigger(job="flights", watch=1), seen) == status


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (view(health="healthy"), None),
        (view(health="unknown"), None),
        (view(health="unhealthy"), "unhealthy"),
        (view("stopping", health="unhealthy", desired="running"), "unhealthy"),
        (view(health="unhealthy", desired="stopped"), None),
        (view("stopping", health="unhealthy", desired="stopped"), None),
        (view(health="unhealthy", operation="restore"), None),
        (view("failed", desired="running"), "gone"),
    ],
)
def test_an_unhealthy_driver_is_told_of_where_that_is_wanted_and_nobody_works_on_the_job(
    seen: JobView, status: str | None
) -> None:
    assert judged(JobEndTrigger(job="flights", heal=True, watch=1), seen) == status
    assert judged(JobEndTrigger(job="flights", watch=1), seen) == (None if status == "unhealthy" else status)


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (view(epoch=3), None),
        (view("stopping", epoch=3), None),
        (view("unknown", epoch=3), None),
        (view("stopped", epoch=3), "gone"),
        (view("failed", epoch=3), "gone"),
        (view("starting", epoch=3), "gone"),
        (view("running", epoch=4), "gone"),
        (view("stopped", epoch=3, operation="stop"), "gone"),
    ],
)
def test_a_driver_is_gone_when_its_epoch_is_over(seen: JobView, status: str | None) -> None:
    assert judged(DriverGoneTrigger(job="flights", epoch=3, give_up_at=LATER), seen) == status
    assert judged(DriverGoneTrigger(job="flights", epoch=3, give_up_at=EARLIER), seen) == (status or "late")


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (view(batch=7), None),
        (view(batch=8), "done"),
        (view(batch=None), None),
        (view("failed", batch=7), "failed"),
        (view("failed", batch=7, operation="start"), None),
    ],
)
def test_a_batch_counts_above_the_one_that_is_named(seen: JobView, status: str | None) -> None:
    trigger = BatchCommittedTrigger(job="flights", after_batch=7, failed_states=["failed"])

    assert judged(trigger, seen) == status


def test_a_driver_without_data_is_enough_only_where_that_was_said() -> None:
    idle = view(batch=7, triggered=True)

    assert judged(BatchCommittedTrigger(job="flights", after_batch=7), idle) is None
    event = BatchCommittedTrigger(job="flights", after_batch=7, accept_idle=True).judge(idle)
    assert event is not None
    assert event["idle"] is True


def first_event(trigger: BaseTrigger) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async for event in trigger.run():
            payload: dict[str, Any] = event.payload
            return payload
        raise AssertionError("it ended without an event")

    return asyncio.run(asyncio.wait_for(run(), 10))


class Watcher:
    """Shows what it was told to, one after the other; the last one for ever."""

    def __init__(self, *sights: JobView | Exception) -> None:
        self.sights = list(sights)
        self.looks = 0

    def look(self) -> JobView:
        self.looks += 1
        sight = self.sights.pop(0) if len(self.sights) > 1 else self.sights[0]
        if isinstance(sight, Exception):
            raise sight
        return sight


def watching(patch: pytest.MonkeyPatch, watcher: Watcher) -> JobEndTrigger:
    patch.setattr("streambank_airflow.hooks.watchers.Watchers.job", lambda self, ref, site: watcher)
    patch.setattr(JobEndTrigger, "held", lambda self, event, hook: event)  # there is no such file
    return JobEndTrigger(
        job="flights", watch=1, jobs_file="jobs.toml", poll_interval_s=0.001, remember={"n": 1}
    )


def test_a_trigger_looks_until_it_can_judge_and_gives_back_what_it_was_to_remember(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watcher = Watcher(view(), view(), view("failed", desired="running"))

    event = first_event(watching(monkeypatch, watcher))

    assert (event["status"], event["remember"], watcher.looks) == ("gone", {"n": 1}, 3)


def test_storage_that_fails_for_a_while_ends_no_wait_of_days(monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = [StorageError("The disk is away.")] * (PATIENCE - 1)
    watcher = Watcher(*trouble, view(), *trouble, view("stopped", desired="stopped"))

    assert first_event(watching(monkeypatch, watcher))["status"] == "stopped"


def test_storage_that_goes_on_failing_is_reported_as_what_a_retry_may_heal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = first_event(watching(monkeypatch, Watcher(StorageError("The disk is away.", hint="Mount it."))))

    assert (event["status"], event["retryable"]) == ("error", True)
    assert event["message"] == "The disk is away. [storage]"
    assert (event["code"], event["hint"]) == ("storage", "Mount it.")


def test_what_somebody_has_to_repair_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher(FormatError("A record is damaged."))

    event = first_event(watching(monkeypatch, watcher))

    assert (event["retryable"], watcher.looks) == (False, 1)


def test_a_pause_lasts_until_its_moment_whoever_waits() -> None:
    assert first_event(PauseTrigger(until=EARLIER, remember={"n": 2})) == {
        "status": "over",
        "remember": {"n": 2},
    }


DECLARED = """
repository = "repository"
[jobs.flights]
application = "a.py"
checkpoint = "c/flights"
[[jobs.flights.notify]]
class = "tests.support.airflow_face.notifiers.FileNotifier"
args = {{file = "{chat}", text = "{{{{ kind }}}}: {{{{ message }}}}"}}
kinds = ["giving-up"]
"""


def test_while_the_declaration_has_a_mistake_the_trigger_alerts_and_its_task_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The task would not find the job; and Airflow may not even find the task's DAG."""
    file, chat = tmp_path / "streaming_jobs.toml", tmp_path / "chat"
    text = DECLARED.format(chat=chat)
    file.write_text(text, encoding="utf-8")
    mistake = text.replace("checkpoint =", "checkpiont =")
    seen = view("failed", desired="running")
    repaired: list[bool] = []

    class Died(Watcher):
        """Its driver dies, while somebody edits the file."""

        job = load_jobs(file).job("flights")
        access = None

        def look(self) -> JobView:
            found = super().look()
            if found.down and self.looks < 6:
                file.write_text(mistake, encoding="utf-8")
            elif self.looks == 6:
                file.write_text(text, encoding="utf-8")
                repaired.append(True)
            return found

    died = Died(view(), seen)
    monkeypatch.setattr("streambank_airflow.hooks.watchers.Watchers.job", lambda self, ref, site: died)
    trigger = JobEndTrigger(job="flights", watch=1, jobs_file=str(file), poll_interval_s=0.001)

    event = first_event(trigger)

    assert (event["status"], repaired, died.looks) == ("gone", [True], 6)
    (alert,) = chat.read_text(encoding="utf-8").splitlines()
    assert alert.startswith("giving-up: The driver of job flights is gone (because), and no other one can be")
    assert "jobs.flights.checkpiont: there is no such field. Did you mean checkpoint?" in alert


def test_a_trigger_that_is_opened_while_the_declaration_has_a_mistake_waits_and_alerts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As when the triggerer is restarted: its task would fail for good, with a mistake that is repaired."""
    file, chat = tmp_path / "streaming_jobs.toml", tmp_path / "chat"
    right = DECLARED.format(chat=chat)
    opened: list[str] = []

    def open_it(self: Watchers, ref: str, site: str | None) -> Watcher:
        opened.append(ref)
        if len(opened) == 3:
            file.write_text(right, encoding="utf-8")
        self.declared.read().around(ref)
        return Watcher(view("failed", desired="running"))

    monkeypatch.setattr("streambank_airflow.hooks.watchers.Watchers.job", open_it)
    file.write_text(right.replace("checkpoint =", "checkpiont ="), encoding="utf-8")
    trigger = JobEndTrigger(job="flights", watch=1, jobs_file=str(file), poll_interval_s=0.001)

    event = first_event(trigger)

    assert (event["status"], len(opened)) == ("gone", 3)
    (alert,) = chat.read_text(encoding="utf-8").splitlines()
    assert alert.startswith("giving-up: Nothing watches job flights") and "Did you mean checkpoint?" in alert


def test_a_mistake_in_another_job_holds_nothing_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "streaming_jobs.toml"
    text = DECLARED.format(chat=tmp_path / "chat")
    file.write_text(f"{text}[jobs.trains]\n", encoding="utf-8")
    watcher = Watcher(view("failed", desired="running"))
    monkeypatch.setattr("streambank_airflow.hooks.watchers.Watchers.job", lambda self, ref, site: watcher)
    trigger = JobEndTrigger(job="flights", watch=1, jobs_file=str(file), poll_interval_s=0.001)
    assert (first_event(trigger)["status"], watcher.looks) == ("gone", 1)
