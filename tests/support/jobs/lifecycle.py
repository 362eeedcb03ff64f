"""All that there is for a job, from its first start to its last stop, wherever its driver is."""

from __future__ import annotations

import os
import signal

from streambank.driver.launchers.choose import launcher_for
from streambank.job.restart import restart_job
from streambank.job.start import StartResult, start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from tests.support.jobs.declared import BY, end_drivers
from tests.support.jobs.lines_job import LinesJob
from tests.support.processes import child
from tests.support.waiting import wait_for

KILLED_STARTER = """
import os, sys
from streambank.declaration.load import load_jobs
from streambank.driver.launchers.choose import launcher_for
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


def live_through_everything(lines: LinesJob, *, submitted: bool) -> StartResult:
    """Start, retry of the start, log, kill, restart, stop at a boundary, and a stop of what comes up.

    Args:
        lines: The job, which nobody has started.
        submitted: Whether a cluster runs its driver.

    Returns:
        The first start that was not killed.
    """
    job, launcher = lines.job, launcher_for(lines.job)
    lines.arrive("one")
    _start_and_be_killed(lines)
    assert lines.events("launched") == []
    left = launcher.find(lines.control)[0]
    started = start_job(job, by=BY)
    assert (started.state, started.launch_id) == ("already-running", left.launch_id)
    assert (started.submission is not None) is submitted
    if submitted:
        assert started.submission == left.submission == job_status(job).submission
    lines.wait_rows("one")
    assert start_job(job, by=BY).state == "already-running", "a retry"
    handles = launcher.find(lines.control)
    assert {one.launch_id for one in handles} == {started.launch_id}
    log = wait_for("its log", lambda: launcher.log_lines(handles[0], 400))
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
    assert job_status(job).state == "stopped"
    wait_for("nothing is left", lambda: not launcher.find(lines.control))

    # A driver that comes up is ended by a stop.
    _start_and_be_killed(lines)
    assert stop_job(job, by=BY).state == "stopped"
    wait_for("nothing is left", lambda: not launcher.find(lines.control))
    assert job_status(job).state == "stopped"
    return started


def _start_and_be_killed(lines: LinesJob) -> None:
    """A start that is killed right after it has submitted: it leaves a driver that comes up."""
    with child(KILLED_STARTER, lines.folder / "jobs.toml") as starter:
        assert starter.wait() == -signal.SIGKILL
    wait_for("the driver that was left", lambda: launcher_for(lines.job).find(lines.control))


def end_all(lines: LinesJob) -> None:
    launcher = launcher_for(lines.job)
    for handle in launcher.find(lines.control):
        launcher.kill(handle)
    end_drivers(lines.control)
