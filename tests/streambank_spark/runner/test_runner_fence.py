"""One driver at a time: refused while one lives, replaced at once when dead, gone when replaced."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import HostId, process
from tests.support.drivers.real_driver import Job
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

ELSEWHERE = HostId("elsewhere", "another-boot", "pid:[1]")


@pytest.mark.storm
def test_a_second_driver_is_refused_and_a_killed_one_replaced_at_once(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with job.driver("steady.py", str(tmp_path), "--batch-s", "2") as first:
        first.wait_committed(0)
        with job.driver("steady.py", str(tmp_path)) as second:
            assert second.wait() == 8, second.tail()
            assert "streambank: Job job is held by process" in second.tail()
            assert f"{first.jvm} (jvm)" in second.tail()
            assert second.events() == []
        batch = first.wait_in_batch()
        os.kill(first.jvm, signal.SIGKILL)
        killed_at = time.monotonic()
        with job.driver("steady.py", str(tmp_path)) as third:
            # Its lease was not to be waited for: only Spark itself has to start.
            assert third.epoch == first.epoch + 1
            started_after_s = time.monotonic() - killed_at
            third.wait_committed(batch + 1)
            assert process(first.python, "python") is None
            os.kill(third.python, signal.SIGTERM)
            assert third.wait() == 0
            assert third.batches("offsets") == third.batches("commits")
    assert started_after_s < 60
    assert "exists any more" in job.control.lease.claims.records.read(third.epoch)["replaces"]["why"]


@pytest.mark.storm
def test_a_stopped_driver_that_was_replaced_ends_before_its_next_commit(tmp_path: Path) -> None:
    job = Job(tmp_path)
    application = ("steady.py", str(tmp_path), "--batch-s", "30", "--slow-from", "2")
    with job.driver(*application, beat_s=0.5, ttl_s=3.0) as driver:
        driver.wait_committed(1)
        driver.wait_in_batch()
        python, jvm, epoch = driver.python, driver.jvm, driver.epoch
        for pid in (python, jvm):
            os.kill(pid, signal.SIGSTOP)
        before = driver.batches("commits")
        # Here it counts as living for as long as it exists, though it stands still.
        here = job.control.lease.view()
        assert here is not None and here.state == "live"
        # Somewhere else only its beat can be seen, and that stands still.
        elsewhere = JobControl.open(str(tmp_path / "control"), "job", here=ELSEWHERE)
        claim = elsewhere.lease.acquire([], purpose="run", ttl_s=30.0)
        assert claim.epoch == epoch + 1

        for pid in (python, jvm):
            os.kill(pid, signal.SIGCONT)
        went_on_at = time.monotonic()
        assert driver.wait(20) == -signal.SIGKILL
        wait_for("the end of Python", lambda: process(python, "python") is None, 5)
        assert time.monotonic() - went_on_at < 5
        assert driver.events("killed")[0]["why"] == "its lease was lost: another holder took over"
        assert driver.batches("commits") == before
        assert claim.held()
        assert driver.events("driver-ended") == []
