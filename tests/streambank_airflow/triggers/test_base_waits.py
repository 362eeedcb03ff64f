"""What a wait says in its log: changes, not looks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.triggers.base import LEAST_S, DeadlineTrigger, JobTrigger, LoggedWait, SensorTrigger
from streambank_airflow.triggers.job import (
    BatchCommittedTrigger,
    DriverGoneTrigger,
    DriverStaysTrigger,
    DriverTrigger,
    JobEndTrigger,
    JobReadyTrigger,
    JobStatusTrigger,
    JobWatchedTrigger,
)
from streambank_airflow.triggers.sla import SlaTrigger
from streambank_airflow.triggers.watermark import WatermarkTrigger
from streambank_airflow.watch.job import JobView

LATER = "2999-01-01T00:00:00Z"


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, text: str, *more: Any) -> None:
        self.lines.append(text % more)

    def said(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def view(state: str = "running", **more: Any) -> JobView:
    return JobView("flights", state, **more)


def test_a_wait_says_what_changes_and_not_each_look() -> None:
    log, clock = Log(), Clock()
    told = LoggedWait(log, BatchCommittedTrigger(job="flights", after_batch=7), clock)

    told.look(view("starting", why="it was launched"))
    assert log.said() == [
        "Waiting for a batch of job flights above 7. Job flights is starting: it was launched."
    ]
    for _ in range(10):
        clock.now += 5
        told.look(view("starting", why="it was launched"))
    assert log.said() == []
    told.look(view(batch=5))
    assert log.said() == ["Job flights is running: its newest batch is 5."]
    told.look(view(batch=6))
    assert log.said() == [], "the state is said at once, a batch once a minute"
    clock.now += LEAST_S
    told.look(view(batch=6))
    assert log.said() == ["Job flights is running: its newest batch is 6."]
    clock.now += 590
    told.look(view(batch=6))
    assert log.said() == []
    clock.now += 10
    told.look(view(batch=6))
    (still,) = log.said()
    assert still.startswith("Still waiting, for 11 min 50 s so far, for a batch of job flights above 7. Job ")
    told.look(view(batch=8))
    told.end({"status": "done"})
    assert log.said() == [
        "The wait for a batch of job flights above 7 is over after 11 min 50 s: done. "
        "Job flights is running: its newest batch is 8."
    ]


def test_a_wait_that_could_not_look_says_why() -> None:
    log = Log()
    told = LoggedWait(log, JobStatusTrigger(job="flights", states=["running", "checkpoint-lost"]), Clock())

    told.end({"status": "error", "message": "The disk is away. [storage]"})

    assert log.said() == [
        "The wait for job flights to be running is over after 0 s: The disk is away. [storage]."
    ]


WAITS: list[JobTrigger] = [
    JobReadyTrigger(job="flights", give_up_at=LATER),
    JobEndTrigger(job="flights"),
    DriverGoneTrigger(job="flights", epoch=3, give_up_at=LATER),
    DriverStaysTrigger(job="flights", launch_id="one", give_up_at=LATER),
    JobWatchedTrigger(job="flights", give_up_at=LATER),
    JobStatusTrigger(job="flights", states=["stopped"]),
    BatchCommittedTrigger(job="flights", after_batch=-1),
    WatermarkTrigger(job="flights", moment="2026-01-01T00:00:00Z"),
    SlaTrigger(job="flights"),
]


def kinds(of: type[Any]) -> set[type[Any]]:
    found = {one for kind in of.__subclasses__() for one in kinds(kind)} | {of}
    return {one for one in found if one.__module__.startswith("streambank_airflow.")}


def test_each_wait_says_what_it_waits_for() -> None:
    abstract = {JobTrigger, DeadlineTrigger, DriverTrigger, SensorTrigger}
    assert {type(one) for one in WAITS} == kinds(JobTrigger) - abstract
    for one in WAITS:
        assert "job flights" in one.awaits, type(one)
        assert one.words(view(batch=3, starts="1 of 2 has begun")).startswith("Job flights is running")


def test_a_trigger_says_it_by_its_own_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [view("starting"), view("starting"), view(batch=8)]
    log = Log()

    class Watcher:
        def look(self) -> JobView:
            return seen.pop(0)

    async def opened(*_: Any) -> None:
        return None

    monkeypatch.setattr(StreambankHook, "aopen", opened)
    monkeypatch.setattr(BatchCommittedTrigger, "log", log)
    monkeypatch.setattr(BatchCommittedTrigger, "open_watcher", lambda self, hook: Watcher())
    trigger = BatchCommittedTrigger(job="flights", after_batch=7, poll_interval_s=0.001)

    async def wait() -> Any:
        async for event in trigger.run():
            return event.payload

    assert asyncio.run(wait())["status"] == "done"
    first, changed, last = log.said()
    assert first.startswith("Waiting for a batch of job flights above 7.")
    assert changed == "Job flights is running: its newest batch is 8."
    assert last.startswith("The wait for a batch of job flights above 7 is over after ")
