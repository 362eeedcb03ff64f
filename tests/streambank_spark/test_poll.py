"""What a driver does once in a while, without a JVM."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from streambank.job.claims import Clock
from streambank.job.control import JobControl
from streambank.times import to_json_time
from streambank_spark import poll
from streambank_spark.poll import ControlJournal, Poll
from streambank_spark.queries import Queries
from tests.support.driver import Job
from tests.support.jobs import FakeClock


def test_the_holder_of_the_lease_prunes_old_records_every_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.pruning.NEWEST", 2)
    job, clock = Job(tmp_path), FakeClock()
    control = JobControl(job.control.store, job.name, clock=Clock(clock.monotonic, clock.sleep))
    spec = job.spec("steady.py")
    driver = Poll(control, spec, 1, Queries(job.name, {}), ControlJournal(control, "l", 1), lambda wish: None)
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
