"""Two drivers on one checkpoint on S3: nothing of Spark's keeps them apart, so the fence has to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from demo.jars import s3a
from streambank.checkpoint.position import batches_of
from streambank.control.control import JobControl
from streambank.control.processes import HostId, process
from streambank.driver.spec import QuerySpec
from tests.support.drivers.real_driver import APPLICATIONS, Job, environment, submit
from tests.support.storage.s3_servers import S3Server, seaweedfs
from tests.support.waiting import wait_for

__all__ = ["seaweedfs"]  # a fixture

pytestmark = pytest.mark.spark

ELSEWHERE = HostId("elsewhere", "another-boot", "pid:[1]")


def test_without_the_fence_two_drivers_commit_the_same_batch(seaweedfs: S3Server, tmp_path: Path) -> None:
    """The control of the next test: what goes wrong on S3A where nobody keeps a second driver out."""
    done = subprocess.run(
        submit(
            APPLICATIONS / "racing_commits.py", f"{seaweedfs.location('s3a')}/commits", conf=s3a.settings()
        ),
        cwd=tmp_path,
        env=environment(**seaweedfs.environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["most"] > 1, "Spark's commits on S3A exclude each other now: say so in the documentation"


def test_a_stopped_driver_that_was_replaced_commits_nothing(
    seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seaweedfs.use(monkeypatch)
    location = f"{seaweedfs.location('s3a')}/steady"
    job = Job(tmp_path, conf=s3a.settings(), variables=seaweedfs.environment)
    application = ("steady.py", str(tmp_path), "--batch-s", "30", "--slow-from", "1")
    queries = {"main": QuerySpec(location, 1)}
    with job.driver(*application, queries=queries, beat_s=0.5, ttl_s=3.0) as driver:
        wait_for("the first commit", lambda: batches_of(location).committed == 0)
        wait_for("a batch under way", lambda: batches_of(location).planned == 1)
        python, jvm, epoch = driver.python, driver.jvm, driver.epoch
        for pid in (python, jvm):
            os.kill(pid, signal.SIGSTOP)
        before = batches_of(location)
        elsewhere = JobControl.open(str(tmp_path / "control"), "job", here=ELSEWHERE)
        claim = elsewhere.lease.acquire([], purpose="run", ttl_s=30.0)
        assert claim.epoch == epoch + 1

        for pid in (python, jvm):
            os.kill(pid, signal.SIGCONT)
        assert driver.wait(20) == -signal.SIGKILL
        wait_for("the end of Python", lambda: process(python, "python") is None, 5)
        assert driver.events("killed")[0]["why"] == "its lease was lost: another holder took over"
        assert batches_of(location) == replace(before, committed=0)
        assert claim.held()
