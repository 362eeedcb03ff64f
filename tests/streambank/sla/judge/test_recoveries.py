"""From the launch of a driver, or the begin of a restore, to the next batch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.records import RecordStream
from streambank.core.units import to_json_time
from streambank.sla.judge.recoveries import Recovery, recoveries
from streambank.storage import open_store
from tests.support.sla.progress_records import at, line


class Job:
    """A job's records, with times of our own."""

    def __init__(self, folder: Path) -> None:
        self.control = JobControl(open_store(folder), "flights")
        self._files = 0

    def event(self, kind: str, second: float, **details: Any) -> None:
        self.control.event_records.append({"kind": kind, "at": to_json_time(at(second)), **details})

    def start(self, epoch: int, second: float, *, launched: float | None = None) -> None:
        if launched is not None:
            self.event("launched", launched, launch_id=f"launch-{epoch}")
        self.event("driver-started", second, launch_id=f"launch-{epoch}", epoch=epoch)

    def records(self, epoch: int, *lines: tuple[int, float], query: str = "main") -> None:
        self._files += 1
        data = b"".join(line(batch, second, epoch=epoch) + b"\n" for batch, second in lines)
        self.control.store.write(f"progress/{query}/{self._files:010d}.jsonl", data)

    def restore(self, second: float, **more: Any) -> None:
        report: Mapping[str, Any] = {
            "savepoint": "b000003-1",
            "job": "flights",
            "started_at": to_json_time(at(second)),
            "seconds": 20.0,
            **more,
        }
        RecordStream(self.control.store, "restores").append(report)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_start_takes_from_the_launch_to_the_first_batch(job: Job) -> None:
    job.start(1, 5, launched=0)
    job.records(1, (0, 30), (1, 40))
    job.records(1, (2, 50))
    assert recoveries(job.control) == [Recovery("start", at(0), at(30), 1, 0)]
    assert recoveries(job.control)[0].seconds == 30
    job.start(2, 104, launched=100)
    assert len(recoveries(job.control)) == 1, "no batch yet"
    job.records(2, (3, 145))
    assert [one.seconds for one in recoveries(job.control)] == [30, 45]
    assert [one.epoch for one in recoveries(job.control, since=at(100))] == [2]


def test_the_longest_step_of_a_recovery_is_named_with_what_to_do(job: Job) -> None:
    job.start(1, 100, launched=0)
    job.records(1, (0, 130))
    (one,) = recoveries(job.control)
    assert one.steps == (("launch", 100.0), ("first-batch", 30.0))
    fact = one.as_fact()
    assert fact.what == "A start, epoch 1. The longest step: the launch of the driver, 1 min 40 s."
    assert "the load of its machine" in fact.advice and "snapshots" not in fact.advice
    job.restore(200, seconds=500.0)
    job.start(2, 702, launched=701)
    job.records(2, (1, 710))
    restored = next(one for one in recoveries(job.control) if one.kind == "restore").as_fact()
    assert "The longest step: the restore itself, 8 min 20 s." in restored.what


def test_a_driver_that_nobody_launched_counts_from_its_own_start(job: Job) -> None:
    job.start(1, 5)
    job.records(1, (0, 12))
    assert [one.seconds for one in recoveries(job.control)] == [7]


def test_a_restore_takes_from_its_begin_to_the_batch_after_the_next_start(job: Job) -> None:
    job.start(1, 1, launched=0)
    job.records(1, (0, 10), (9, 90))
    job.restore(100)
    assert [one.kind for one in recoveries(job.control)] == ["start"]
    job.start(2, 131, launched=130)
    job.records(2, (4, 150))
    found = recoveries(job.control)
    assert [(one.kind, one.seconds, one.savepoint) for one in found] == [
        ("start", 10, None),
        ("restore", 50, "b000003-1"),
        ("start", 20, None),
    ]


@pytest.mark.parametrize("seconds", [1e300, True, "20", None])
def test_a_restore_of_which_nobody_knows_how_long_it_took_is_passed_over(job: Job, seconds: object) -> None:
    job.restore(0, seconds=seconds)
    job.start(2, 60, launched=50)
    job.records(2, (4, 90))
    assert [one.kind for one in recoveries(job.control)] == ["start"]


def test_a_start_before_the_restore_had_ended_is_not_its(job: Job) -> None:
    job.start(1, 111, launched=110)
    job.records(1, (0, 120))
    job.restore(100)
    assert [one.kind for one in recoveries(job.control)] == ["start"]


def test_queries_are_told_apart(job: Job) -> None:
    job.restore(0, job="flights/left")
    job.restore(0, job="a job/with/slashes")
    job.start(1, 31, launched=30)
    job.records(1, (0, 40), query="left")
    assert [one.kind for one in recoveries(job.control, "left")] == ["restore", "start"]
    assert recoveries(job.control, "right") == recoveries(job.control) == []


def test_what_was_deleted_makes_no_recovery_of_days(job: Job) -> None:
    """The driver has run for long, and its first files are gone: nobody knows when its first batch came."""
    job.start(1, 1, launched=0)
    job._files = 40
    job.records(1, (90_000, 900_000))
    job.records(1, (90_100, 901_000))
    assert recoveries(job.control) == []


def test_damaged_events_and_reports_are_passed_over(job: Job) -> None:
    job.event("launched", 0, launch_id="launch-1")
    job.control.store.write("events/0000000002.json", b"nonsense")
    job.control.store.write("restores/0000000001.json", b"{}")
    job.control.event_records.append({"kind": "driver-started", "at": "yesterday", "epoch": 1})
    job.start(1, 5)
    job.records(1, (0, 9))
    assert [one.seconds for one in recoveries(job.control)] == [9]
