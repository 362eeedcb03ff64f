"""What a driver does once in a while, without a JVM."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from streambank.control.claims import Clock
from streambank.control.control import JobControl
from streambank.control.progress import progress_keys
from streambank.core.units import to_json_time
from streambank_spark.runner import poll
from streambank_spark.runner.poll import ControlJournal, Poll
from streambank_spark.runner.queries import Managed, Queries
from streambank_spark.runner.stop import StopRequest
from tests.support.drivers.real_driver import Job
from tests.support.waiting import FakeClock
from tests.support.waiting import poll as wait_for


def test_the_holder_of_the_lease_prunes_old_records_every_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.control.pruning.NEWEST", 2)
    job, clock = Job(tmp_path), FakeClock()
    control = JobControl(job.control.store, job.name, clock=Clock(clock.monotonic, clock.sleep))
    spec = job.spec("steady.py")
    driver = Poll(
        control, spec, 1, Queries(job.name, {}), ControlJournal(control, "l", 1), lambda asked: None
    )
    for _ in range(6):
        control.event_records.append({"kind": "x", "at": to_json_time(datetime(2013, 1, 1, tzinfo=UTC))})

    driver.once()
    assert len(control.event_records.numbers()) == 6
    clock.now += poll.PRUNE_EVERY_S
    driver.once()

    assert control.event_records.numbers() == [4, 5, 6]
    control.event_records.append({"kind": "x", "at": to_json_time(datetime(2013, 1, 1, tzinfo=UTC))})
    driver.once()
    assert control.event_records.numbers() == [4, 5, 6, 7]
    assert driver.failures == 0


def test_old_progress_goes_at_the_same_time(tmp_path: Path) -> None:
    job, clock = Job(tmp_path), FakeClock()
    control = JobControl(job.control.store, job.name, clock=Clock(clock.monotonic, clock.sleep))
    driver = Poll(
        control,
        replace(job.spec("steady.py"), progress_age_s=3600.0),
        1,
        Queries(job.name, {}),
        ControlJournal(control, "l", 1),
        lambda asked: None,
    )
    managed = cast(Managed, SimpleNamespace(name="main", key=None))
    old = tmp_path / "control" / job.name / "progress/main/0000000001.jsonl"
    old.parent.mkdir(parents=True)
    old.touch()
    writer = driver._writer(managed)
    writer.add({"runId": "r", "batchId": 0})
    writer.flush()
    os.utime(old, (1, 1))

    driver.once()
    assert old.exists()
    clock.now += poll.PRUNE_EVERY_S
    driver.once()
    assert not old.exists()
    assert progress_keys(control.store) == ["progress/main/0000000002.jsonl"]
    assert driver.failures == 0


def test_a_wish_to_stop_is_heard_though_the_jvm_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "POLL_S", 0.01)
    job, hung, heard = Job(tmp_path), threading.Event(), list[StopRequest]()
    answers = threading.Event()

    class Hanging(Queries):
        def all(self) -> list[Managed]:
            hung.set()
            answers.wait()
            return []

    control = job.control
    queries, journal = Hanging(job.name, {}), ControlJournal(control, "l", 1)
    driver = Poll(control, job.spec("steady.py"), 1, queries, journal, heard.append)
    driver.start()
    assert hung.wait(30)
    number = control.requests.post("stop", epoch=1, by={"user": "me"}, force_after_s=2.0).number
    wait_for(lambda: heard)
    answers.set()
    driver.stop()

    assert [(asked.request, asked.force_after_s) for asked in heard] == [(number, 2.0)], "once"
    assert driver.failures == 0
