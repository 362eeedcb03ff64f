"""A supervised driver whose worker is lost: the master runs it under another id, and keeps the old one."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import this_process
from streambank.core.errors import StorageError
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.launchers.choose import launcher_for
from streambank.driver.location import launched_handle, record_location
from streambank.job.start import start_job
from streambank.job.status import job_status
from tests.streambank.driver.launchers.test_standalone import in_cluster, master, submitted
from tests.support.jobs.declared import BY, launched
from tests.support.spark.fake_master import FakeMaster

__all__ = ["master"]


def relaunched(folder: Path, master: FakeMaster) -> tuple[Launcher, JobControl, Handle]:
    job, control, spec = submitted(folder, master)
    launcher = launcher_for(job)
    handle = launcher.submit(job, control, spec)
    control.record_event("launched", launch_id=spec.launch_id, submission=handle.submission)
    assert master.lose_worker("driver-0001") == "driver-0002"
    return launcher, control, handle


def test_it_is_followed_under_its_new_id(folder: Path, master: FakeMaster) -> None:
    launcher, control, handle = relaunched(folder, master)
    (found,) = launcher.find(control)
    assert (found.launch_id, found.submission) == (handle.launch_id, "driver-0002")
    state = launcher.status(handle)
    assert (state.state, state.why) == ("running", "RUNNING as driver-0002")
    assert state.log is not None and "driver-0002" in state.log
    assert state.submission == "driver-0002"
    launcher.kill(handle)
    assert master.killed == ["driver-0002"]
    assert launcher.status(handle).state == "ended" and launcher.find(control) == []
    launcher.kill(handle)


def test_the_master_may_have_forgotten_the_old_id(folder: Path, master: FakeMaster) -> None:
    launcher, _, handle = relaunched(folder, master)
    del master.states["driver-0001"]
    assert launcher.status(handle).state == "running"
    launcher.kill(handle)
    assert master.states == {"driver-0002": "KILLED"}


def test_one_that_waits_for_a_worker_is_there(folder: Path, master: FakeMaster) -> None:
    launcher, control, handle = relaunched(folder, master)
    master.workerless = True
    (found,) = launcher.find(control)
    assert (found.launch_id, found.submission) == (handle.launch_id, "driver-0001")
    assert launcher.status(found).state == "running"
    with pytest.raises(StorageError) as caught:
        launcher.kill(found)
    assert caught.value.code == "not-killed", "which one waits for a worker is not told"
    assert master.states["driver-0002"] == "RUNNING"
    master.workerless = False
    launcher.kill(found)
    assert master.states["driver-0002"] == "KILLED"


def test_it_is_over_when_no_driver_can_be_it(folder: Path, master: FakeMaster) -> None:
    launcher, control, handle = relaunched(folder, master)
    master.states["driver-0002"] = "FINISHED"
    master.submit({"appArgs": ["--launch", "/of/another/launch-5.json"]})
    assert launcher.status(handle).state == "ended" and launcher.find(control) == []
    launcher.kill(handle)
    assert master.states["driver-0003"] == "RUNNING"


def test_status_and_start_tell_where_it_is_now(folder: Path, master: FakeMaster) -> None:
    job = in_cluster(folder, master)
    control, spec = launched(job, supervised=True)
    launcher = launcher_for(job)
    record_location(control, launcher.submit(job, control, spec))
    control.lease.acquire([this_process("python")], details={"launch_id": spec.launch_id, "purpose": "run"})
    assert job_status(job).submission == "driver-0001"
    master.lose_worker("driver-0001")
    master.status = "RECOVERING"
    assert job_status(job).submission == "driver-0001", "nobody can be asked"
    master.status = "ALIVE"
    now = job_status(job)
    assert (now.state, now.submission) == ("running", "driver-0002")
    assert now.log is not None and "driver-0002" in now.log
    assert now.driver is not None and launcher.log_lines(now.driver, 10)[-1] == "of Python"
    known = launched_handle(control, spec.launch_id)
    assert known.submission == "driver-0001", "a status writes nothing"

    assert master.lose_worker("driver-0002") == "driver-0003"
    again = start_job(job, by=BY, wait=False)
    assert (again.state, again.submission) == ("already-running", "driver-0003")
    assert launched_handle(control, spec.launch_id).submission == "driver-0003"
