"""Never a second driver, nor one of an old launch: stop, start and come-back in every order, in a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.core.errors import RefusedError, StorageError
from streambank.core.shape import decode
from streambank.declaration.declaration import Job
from streambank.driver.launchers.standalone import StandaloneLauncher
from streambank.job.crash_loop import record_crash_loop
from streambank.job.restart import RestartAsked, ask_to_restart, restart_job
from streambank.job.start import StartResult, start_job
from streambank.job.status import job_status
from streambank.job.stop import ask_to_stop, stop_job
from tests.support.drivers.cluster_drivers import ClusterDrivers, DriverLife, LeapingClock
from tests.support.jobs.declared import BY, declare
from tests.support.refuses import refuses
from tests.support.spark.fake_master import FakeMaster, fake_master
from tests.support.waiting import poll

pytestmark = pytest.mark.slow  # those who obey nobody are waited for


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with fake_master() as found:
        yield found


@pytest.fixture
def drivers(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterDrivers]:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 1.0)
    found = ClusterDrivers(master)
    clock = LeapingClock(found).clock
    monkeypatch.setattr(
        Job, "records", lambda job: JobControl.open(f"{job.repository}.control", job.name, clock=clock)
    )
    yield found
    found.close()


def in_cluster(folder: Path, master: FakeMaster, *args: str, supervise: bool = False) -> Job:
    launch = f'deploy_mode = "cluster", rest = "{master.url}", web = "{master.url}"'
    launch += ", supervise = true" if supervise else ""
    more = f'master = "spark://127.0.0.1:7077"\nlaunch = {{{launch}}}\nstop = {{force_after = "500ms"}}\n'
    return declare(folder, *args, more=more)


def start(job: Job, **options: Any) -> StartResult:
    launcher = StandaloneLauncher(job.launch, search_s=0.0)
    return start_job(job, by=BY, wait=False, launcher=launcher, **options)


def lost_and_waiting(job: Job, master: FakeMaster, drivers: ClusterDrivers) -> None:
    """A driver of which nobody has heard: it waits for room, and the answer to its submission was lost."""
    master.fault, master.workerless, drivers.room = "lost", True, False
    with pytest.raises(StorageError) as caught:
        start(job)
    assert (caught.value.code, master.fired, len(master.submitted)) == ("submit-unanswered", 1, 1)
    master.fault, master.workerless, drivers.room = None, False, True


def first_of(drivers: ClusterDrivers, launch_id: str | None) -> DriverLife:
    return next(life for life in drivers.lives if life.spec.launch_id == launch_id)


def back_under(drivers: ClusterDrivers, name: str) -> DriverLife:
    life = drivers.play(name)
    poll(lambda: life.epoch)
    return life


def running_one(job: Job, drivers: ClusterDrivers) -> DriverLife:
    started = start(job)
    assert started.state == "started"
    return poll(lambda: first_of(drivers, started.launch_id))


@pytest.mark.parametrize("way", ["stop", "stop in two steps", "restart"])
def test_a_driver_that_waits_for_room_does_not_run_once_it_was_stopped(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers, way: str
) -> None:
    job = in_cluster(folder, master, "--old")
    lost_and_waiting(job, master, drivers)
    master.workerless = True  # it still waits while it is stopped
    job = in_cluster(folder, master, "--new")
    drivers.late = ["driver-0001"]
    if way == "restart":
        restarted = restart_job(job, by=BY, wait=False)
        launch_id = restarted.start.launch_id
    else:
        asked = ask_to_stop(job, by=BY) if way != "stop" else None
        assert stop_job(job, by=BY, asked=asked).state == "already-stopped"
        started = start(job)
        assert started.state == "started"
        launch_id = started.launch_id
    old = drivers.lives[0]
    assert (old.driver, old.spec.args, old.ended) == ("driver-0001", ("--old",), "refused")
    new = first_of(drivers, launch_id)
    assert (new.spec.args, new.ended, drivers.running()) == (("--new",), None, ["driver-0002"])


def test_without_a_stop_a_driver_that_has_waited_runs(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers
) -> None:
    job = in_cluster(folder, master)
    lost_and_waiting(job, master, drivers)
    drivers.play("driver-0001")
    poll(lambda: drivers.lives[0].epoch)
    result = start(job)
    assert (result.state, result.launch_id) == ("already-running", drivers.lives[0].spec.launch_id)
    assert len(master.submitted) == 1


def test_a_stop_that_comes_while_a_start_works_is_later_than_its_launch(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = in_cluster(folder, master)
    settled = job.records().lease.settle()
    assert settled is None
    desired = job.records().set_desired("running", by=BY)
    drivers.room = False

    launcher = StandaloneLauncher(job.launch, search_s=0.0)
    submit = launcher.submit

    def stopped_meanwhile(*args: Any) -> None:
        ask_to_stop(job, by=BY)
        submit(*args)
        raise StorageError("the answer is lost", code="submit-unanswered", hint="x")

    monkeypatch.setattr(launcher, "submit", stopped_meanwhile)
    with pytest.raises(StorageError):
        start_job(job, by=BY, wait=False, launcher=launcher)
    job.records().set_desired("running", by=BY)
    late = drivers.play("driver-0001")
    assert poll(lambda: late.ended) == "refused"
    assert late.spec.desired == desired.number


def test_one_whose_beat_stood_still_is_ended_before_another_is_launched(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers
) -> None:
    job = in_cluster(folder, master)
    hung = running_one(job, drivers)
    hung.freeze()
    result = start(job)
    assert (result.state, result.epoch, result.submission) == ("started", 2, "driver-0002")
    assert (hung.ended, master.killed, drivers.running()) == ("killed", ["driver-0001"], ["driver-0002"])


def test_one_that_takes_the_lease_after_it_was_looked_at_is_left_alone(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = in_cluster(folder, master)
    lost_and_waiting(job, master, drivers)
    control = job.records()
    settle = control.lease.settle
    late: list[DriverLife] = []

    def too_early(timeout_s: float | None = None) -> ClaimView | None:
        view = settle(timeout_s)
        if not late:
            late.append(drivers.play("driver-0001"))
            poll(lambda: late[0].epoch)
        return view

    monkeypatch.setattr(control.lease, "settle", too_early)
    result = start(job, control=control)
    assert (result.state, result.epoch, result.launch_id) == ("already-running", 1, late[0].spec.launch_id)
    assert (late[0].ended, len(master.submitted), master.killed) == (None, 1, [])


def test_also_where_an_operation_has_had_the_lease_since(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers
) -> None:
    job = in_cluster(folder, master, supervise=True)
    running_one(job, drivers).freeze()
    lease = job.records().lease
    with pytest.raises(RefusedError, match="its cluster may still run it"), lease.held("restore", by=BY):
        pass
    # A person breaks it, who takes the cluster for lost.
    lease.break_off(by=BY, why="I see no driver")
    with lease.held("restore", by=BY):
        pass
    result = start(job)
    assert (result.state, result.epoch, drivers.running()) == ("started", 3, ["driver-0002"])
    assert master.killed == ["driver-0001"]


def test_and_before_a_job_is_called_stopped(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers
) -> None:
    job = in_cluster(folder, master)
    hung = running_one(job, drivers)
    hung.freeze()
    stopped = stop_job(job, by=BY, force_after_s=30)
    assert (stopped.state, stopped.how, stopped.epoch) == ("stopped", "killed", 1)
    assert (master.killed, drivers.running()) == (["driver-0001"], [])
    again = stop_job(job, by=BY)
    assert (again.state, again.how, master.killed) == ("already-stopped", "none", ["driver-0001"])


def test_no_second_driver_where_the_first_cannot_be_ended(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = in_cluster(folder, master)
    running_one(job, drivers).freeze()
    kills: list[object] = []
    monkeypatch.setattr(StandaloneLauncher, "kill", lambda self, handle: kills.append(handle))
    monkeypatch.setattr("streambank.driver.location.CLUSTER_MARGIN_S", 0.5)
    for act in (lambda: start(job), lambda: stop_job(job, by=BY)):
        with refuses(StorageError, "stop-timeout"):
            act()
    assert (len(kills), len(master.submitted)) == (2, 1)


@pytest.mark.parametrize("deaf", [False, True])
def test_one_that_took_the_lease_alone_is_located_by_whoever_comes(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers, deaf: bool
) -> None:
    job = in_cluster(folder, master)
    lost_and_waiting(job, master, drivers)
    drivers.deaf = deaf
    life = drivers.play("driver-0001")
    poll(lambda: life.epoch)
    if deaf:
        stopped = stop_job(job, by=BY)
        assert (stopped.how, life.ended, master.killed) == ("killed", "killed", ["driver-0001"])
    else:
        result = start(job)
        assert (result.state, result.submission) == ("already-running", "driver-0001")
        status = job_status(job)
        assert (status.submission, status.log) == ("driver-0001", result.tracking)
        assert status.log is not None and "driver-0001" in status.log


def test_one_that_its_cluster_brought_back_under_another_name_is_found_to_be_killed(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers
) -> None:
    job = in_cluster(folder, master, supervise=True)
    first = running_one(job, drivers)
    first.dies.set()
    poll(lambda: first.ended)
    master.states["driver-0001"] = "ERROR"  # its worker is lost
    drivers.deaf = True
    master.submitted.append(master.submitted[0])
    master.states["driver-0002"] = "RUNNING"
    back_under(drivers, "driver-0002")
    assert stop_job(job, by=BY).how == "killed"
    assert (master.killed, drivers.running()) == (["driver-0002"], [])


@pytest.mark.parametrize("back", [False, True])
def test_a_restart_never_takes_the_one_that_a_supervisor_brings_back(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers, back: bool
) -> None:
    drivers.stop_code = 1  # its query failed while it was stopped
    job = in_cluster(folder, master, "--old", supervise=True)
    running_one(job, drivers)
    job = in_cluster(folder, master, "--new", supervise=True)
    if back:
        drivers.late = ["driver-0001"]
    result = restart_job(job, by=BY, wait=False)
    assert (result.state, result.how, result.start.submission) == ("restarted", "boundary", "driver-0002")
    assert first_of(drivers, result.start.launch_id).spec.args == ("--new",)
    assert (master.killed, drivers.running()) == (["driver-0001"], ["driver-0002"])
    ends = [life.ended for life in drivers.lives if life.driver == "driver-0001"]
    assert ends[0] == "stopped" and set(ends[1:]) <= {"refused"} and len(ends) == 1 + back


@pytest.mark.parametrize("when", ["dead", "back before it was asked", "back after it was asked"])
def test_a_restart_replaces_a_supervised_driver_that_has_just_died(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers, when: str
) -> None:
    job = in_cluster(folder, master, "--old", supervise=True)
    first = running_one(job, drivers)
    job = in_cluster(folder, master, "--new", supervise=True)
    if when != "back after it was asked":
        first.dies.set()
        poll(lambda: first.ended)
    if when == "back before it was asked":
        back_under(drivers, "driver-0001")
    drivers.deaf = when == "back after it was asked"
    asked = ask_to_restart(job, by=BY)
    assert asked is not None
    asked = decode(RestartAsked, asked.to_dict(), "request")
    if when == "back after it was asked":
        first.dies.set()
        drivers.play("driver-0001")
        assert poll(lambda: drivers.lives[1].ended) == "refused"
    drivers.deaf = False
    result = restart_job(job, asked, by=BY, wait=False)
    # One that died unasked had not been stopped: what is left of it was ended, or it refused itself.
    expected = "started" if when == "back after it was asked" else "restarted"
    assert (result.state, result.start.state) == (expected, "started")
    assert first_of(drivers, result.start.launch_id).spec.args == ("--new",)
    assert drivers.running() == ["driver-0002"]


def test_a_start_waits_for_the_one_that_a_supervisor_brings_back(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers
) -> None:
    job = in_cluster(folder, master, supervise=True)
    first = running_one(job, drivers)
    first.dies.set()
    poll(lambda: first.ended)
    drivers.play("driver-0001")
    result = start(job)
    assert (result.state, result.epoch, result.launch_id) == ("already-running", 2, first.spec.launch_id)
    assert (len(master.submitted), master.killed) == (1, [])


def test_but_not_for_ever(folder: Path, master: FakeMaster, drivers: ClusterDrivers) -> None:
    job = in_cluster(folder, master, supervise=True)
    running_one(job, drivers).freeze()
    with refuses(StorageError, "start-timeout") as caught:
        start(job, timeout_s=4.0)
    assert "It was ended" in caught.value.hint
    assert (master.killed, drivers.running()) == (["driver-0001"], [])
    assert start(job).submission == "driver-0002"


def test_who_is_not_started_any_more_is_not_brought_back_either(
    folder: Path, master: FakeMaster, drivers: ClusterDrivers
) -> None:
    job = in_cluster(folder, master, supervise=True)
    first = running_one(job, drivers)
    record_crash_loop(job, why="it gets nowhere", by=BY)
    first.dies.set()
    poll(lambda: first.ended)
    back = drivers.play("driver-0001")
    assert poll(lambda: back.ended) == "refused" and drivers.running() == []
    desired = job.records().desired()
    assert desired is not None and desired.state == "running"
    assert start(job).submission == "driver-0002"
