"""Real drivers that stand still: a query that hangs in foreachBatch, and a JVM that is frozen."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.heal import committed_batches, heal_job
from streambank.job.health import Health, Observer, Unhealthy, judge_health
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.sla.judge.recoveries import recoveries
from tests.support.drivers.real_driver import APPLICATIONS
from tests.support.jobs.declared import BY, end_drivers
from tests.support.spark.jvm import spark_options
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.storm]

JOBS = """
repository = "repository"
[jobs.lines]
application = "{application}"
args = {args}
checkpoint = "checkpoint"
master = "local[2]"
[jobs.lines.stop]
force_after = "4s"
[jobs.lines.health]
interval = "5s"
timeout = "10s"
tolerated = 0
first_batch = "2m"
[jobs.lines.spark]
spark.driver.bindAddress = "127.0.0.1"
spark.driver.host = "127.0.0.1"
spark.driver.memory = "700m"
spark.driver.extraJavaOptions = "{java}"
spark.ui.enabled = false
"""


class Eyes:
    """Looks at a job again and again."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.records = job.records()
        self.observer = Observer()
        self.found = Unhealthy(0)

    def look(self) -> Health:
        view = self.records.lease.view()
        assert view is not None
        batches = committed_batches(self.job, self.records)
        seen = self.observer.look(view, batches)
        health = judge_health(self.job.health, self.job.queries, view.status, seen)
        self.found = Unhealthy(view.epoch, view.beat.get("beat"), seen.silent_s, batches, health.why)
        return health

    def said(self) -> dict[str, Any]:
        view = self.records.lease.view()
        assert view is not None
        found: dict[str, Any] = view.status["queries"]["main"]
        return found

    def wait(self, state: str) -> Health:
        found: Health = wait_for(state, lambda: (now := self.look()).state == state and now)
        return found


def declare(folder: Path, *args: str) -> Job:
    """The job, with folders for its input and output, and its first line."""
    for name in ("in", "out"):
        (folder / name).mkdir()
    arrive(folder, "zero")
    jobs = folder / "jobs.toml"
    given = json.dumps([str(folder), *args])
    jobs.write_text(JOBS.format(application=APPLICATIONS / "hanging.py", args=given, java=spark_options()))
    return load_jobs(jobs).job("lines")


def arrive(folder: Path, name: str) -> None:
    """Put a file into the input at once: Spark reads a name only once, whole or not."""
    (folder / name).write_text(f"{name}\n")
    (folder / name).rename(folder / "in" / name)


def wait_written(folder: Path, batch: int) -> None:
    wait_for(f"batch {batch}", (folder / "out" / f"{batch}.json").exists)


def test_what_hangs_is_told_from_what_is_idle_and_is_replaced_without_a_row_lost(tmp_path: Path) -> None:
    job = declare(tmp_path)
    eyes = Eyes(job)
    try:
        start_job(job, by=BY)
        wait_written(tmp_path, 0)
        wait_for("batch 0", lambda: eyes.said()["batch"] == 0)

        # No input for longer than the window of 20 s: it is idle, and that is healthy.
        until = time.monotonic() + 45
        while time.monotonic() < until:
            health = eyes.look()
            assert health.state == "healthy", health
            time.sleep(0.2)
        said = eyes.said()
        assert (said["idle"], said["trigger_s"], said["failed"]) == (True, 0.0, False)

        # Python code hangs in a batch, while the driver beats and Spark believes that all is well.
        (tmp_path / "stuck").touch()
        arrive(tmp_path, "one")
        health = eyes.wait("unhealthy")
        assert "has neither committed a batch nor found its input empty" in health.why
        (tmp_path / "stuck").unlink()
        healed = heal_job(job, eyes.found, by=BY)
        assert (healed.state, healed.how, healed.start.epoch) == ("restarted", "killed", 2)
        wait_written(tmp_path, 1)
        eyes.wait("healthy")

        # A frozen JVM: Python beats, gets the request to stop, and Spark answers nothing any more.
        wait_for("batch 1", lambda: eyes.said()["batch"] == 1)
        assert healed.start.jvm_pid is not None
        os.kill(healed.start.jvm_pid, signal.SIGSTOP)
        arrive(tmp_path, "two")
        beat = eyes.found.beat
        eyes.wait("unhealthy")
        assert eyes.found.beat != beat, "its Python process beats all the while"
        again = heal_job(job, eyes.found, by=BY)
        assert (again.state, again.how, again.start.epoch) == ("restarted", "killed", 3)
        killed = [one.data for one in eyes.records.events() if one.data["kind"] == "killed"]
        assert killed[-1]["why"] == "the JVM did not answer", (
            "it did so by itself, as it would on another host"
        )
        wait_written(tmp_path, 2)
        wait_for("batch 2", lambda: eyes.said()["batch"] == 2)
        stop_job(job, by=BY)
    finally:
        end_drivers(eyes.records)

    rows = [json.loads(one.read_text()) for one in sorted((tmp_path / "out").iterdir())]
    assert rows == [["zero"], ["one"], ["two"]]
    found = recoveries(eyes.records)
    assert [(one.kind, one.cause) for one in found] == [
        ("start", None),
        ("restart", "health"),
        ("restart", "health"),
    ]
    assert all(one.seconds > 4 for one in found[1:]), "the stop before it is part of a restart"


def test_a_query_with_an_interval_is_idle_and_healthy_between_its_triggers(tmp_path: Path) -> None:
    job = declare(tmp_path, "2 seconds")
    eyes = Eyes(job)
    try:
        start_job(job, by=BY)
        wait_for("batch 0", lambda: eyes.said()["batch"] == 0)
        still_s = []
        until = time.monotonic() + 45
        while time.monotonic() < until:
            health = eyes.look()
            assert health.state == "healthy", health
            still_s.append(eyes.said()["still_s"])
            time.sleep(0.2)
        said = eyes.said()
        stop_job(job, by=BY)
    finally:
        end_drivers(eyes.records)
    assert (said["idle"], said["trigger_s"], said["failed"]) == (True, 2.0, False)
    assert max(still_s) < 18, "Spark tells of an idle trigger every ten seconds"
