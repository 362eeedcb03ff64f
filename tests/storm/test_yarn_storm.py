"""Drivers that YARN runs, and drivers here whose executors it runs: all that there is, on a real cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.job.launchers.choose import launcher_for
from streambank.job.restart import restart_job
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from tests.support.driver import wait_for
from tests.support.jobs import BY, child, end_drivers
from tests.support.lines_job import lines_job
from tests.support.yarn import Yarn, running_yarn

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(3600)]

KILLED_STARTER = """
import os, sys
from streambank.job.declaration import load_jobs
from streambank.job.launchers.choose import launcher_for
from streambank.job.start import start_job
job = load_jobs(sys.argv[1]).job("lines")
launcher = launcher_for(job)
submit = launcher.submit
def submit_and_die(*args):
    submit(*args)
    os.kill(os.getpid(), 9)
launcher.submit = submit_and_die
start_job(job, by={}, launcher=launcher)
"""


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with running_yarn(tmp_path_factory.mktemp("yarn")) as found:
        yield found


@pytest.mark.parametrize("deploy_mode", ["cluster", "client"])
def test_a_job_lives_through_everything(
    tmp_path: Path, yarn: Yarn, monkeypatch: pytest.MonkeyPatch, deploy_mode: str
) -> None:
    for name, value in yarn.environment.items():
        monkeypatch.setenv(name, value)
    launch = f'master = "yarn"\nlaunch = {{deploy_mode = "{deploy_mode}", queue = "default"}}'
    lines = lines_job(tmp_path, launch, yarn.conf)
    job, in_cluster = lines.job, deploy_mode == "cluster"
    launcher = launcher_for(job)
    try:
        lines.arrive("one")
        # A start that is killed right after it has submitted: the next one finds what it left behind.
        with child(KILLED_STARTER, tmp_path / "jobs.toml") as starter:
            assert starter.wait() == -signal.SIGKILL
        assert lines.events("launched") == []
        (left,) = wait_for("the driver that was left", lambda: launcher.find(lines.control))
        started = start_job(job, by=BY)
        assert (started.state, started.launch_id) == ("already-running", left.launch_id)
        lines.wait_rows("one")
        if in_cluster:
            assert started.submission == left.submission
            assert started.submission is not None and started.submission.startswith("application_")
            assert started.tracking and "application_" in started.tracking
            assert job_status(job).submission == started.submission
        else:
            assert started.submission is None
        assert start_job(job, by=BY).state == "already-running", "a retry"
        assert len(yarn.apps()) == len({one["id"] for one in yarn.apps()}) >= 1

        (handle,) = launcher.find(lines.control)
        log = wait_for("its log", lambda: launcher.log_lines(handle, 400))
        assert any("INFO" in line or "WARN" in line for line in log), log

        # kill -9 of the driver's JVM: nothing brings it back but another start.
        assert started.jvm_pid is not None
        os.kill(started.jvm_pid, signal.SIGKILL)
        wait_for("its death", lambda: job_status(job).state == "failed")
        lines.arrive("two")
        again = start_job(job, by=BY)
        assert (again.state, again.epoch) == ("started", 2)
        lines.wait_rows("one", "two")

        restarted = restart_job(job, by=BY)
        assert (restarted.state, restarted.how, restarted.start.epoch) == ("restarted", "boundary", 3)
        lines.arrive("three")
        lines.wait_rows("one", "two", "three")

        stopped = stop_job(job, by=BY, savepoint=True)
        assert (stopped.how, stopped.batch, len(stopped.savepoints)) == ("boundary", 2, 1)
        wait_for("nothing runs", lambda: not [a for a in yarn.apps() if a["state"] == "RUNNING"])
        assert launcher.find(lines.control) == []

        # A driver that comes up is ended by a stop.
        with child(KILLED_STARTER, tmp_path / "jobs.toml") as starter:
            assert starter.wait() == -signal.SIGKILL
        wait_for("the driver that was left", lambda: launcher.find(lines.control))
        assert stop_job(job, by=BY).how in ("killed", "boundary")
        wait_for("nothing is left", lambda: not launcher.find(lines.control))
        assert job_status(job).state == "stopped"
    finally:
        for handle in launcher.find(lines.control):
            launcher.kill(handle)
        end_drivers(lines.control)
