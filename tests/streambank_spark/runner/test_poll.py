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
from streambank.core.errors import StorageError
from streambank.core.units import to_json_time
from streambank.storage.local.reserve import keep_reserve
from streambank_spark.runner import poll
from streambank_spark.runner.poll import ControlJournal, Poll
from streambank_spark.runner.queries import Managed, Queries
from streambank_spark.runner.stop import StopRequest
from tests.support.drivers.real_driver import Job
from tests.support.storage.small_disk import FullStore
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


def test_why_a_driver_is_killed_is_in_its_records_and_its_log_although_the_disk_is_full(
    tmp_path: Path,
) -> None:
    """What is logged goes through the JVM, which is killed first."""
    store, log = FullStore(tmp_path / "control"), tmp_path / "driver.log"
    log.write_text("a line\n")
    control = JobControl(store, "flights")
    control.record_event("driver-started")
    keep_reserve(store)
    store.full = True
    ControlJournal(control, "l", 1, str(log)).record("killed", why="its lease was lost")
    assert (control.last_event("killed") or {})["why"] == "its lease was lost"
    assert log.read_text() == 'a line\nstreambank: killed {"why": "its lease was lost"}\n'


def test_last_words_that_cannot_be_recorded_are_in_the_log_with_the_reason(tmp_path: Path) -> None:
    store, log = FullStore(tmp_path / "control"), tmp_path / "driver.log"
    log.touch()
    control = JobControl(store, "flights")
    control.record_event("driver-started")
    store.full = True
    ControlJournal(control, "l", 1, str(log)).record("killed", why="its lease was lost")
    assert "its lease was lost" in log.read_text() and "No space left on device" in log.read_text()


def test_a_look_that_fails_for_hours_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tmp_path)
    driver = Poll(
        job.control,
        job.spec("steady.py"),
        1,
        Queries(job.name, {}),
        ControlJournal(job.control, "l", 1),
        lambda asked: None,
    )

    def full() -> None:
        raise StorageError("No space.", code="disk-full")

    caplog.set_level("WARNING", "streambank_spark.runner.poll")
    monkeypatch.setattr(driver, "_look_at_log", full)
    for _ in range(5):
        driver.once()
    assert driver.failures == 5 and len(caplog.messages) == 1
    assert caplog.messages[0] == "A poll failed and will be tried again: No space."
