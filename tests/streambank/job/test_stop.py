from __future__ import annotations

import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId
from streambank.core.errors import ConflictError, RefusedError, StorageError, StreambankError
from streambank.declaration.declaration import Job
from streambank.job.savepoint import JobSavepoints, savepoint_job
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import StopResult, stop_job
from streambank.storage.local.store import LocalStore
from tests.support.jobs.declared import BY, ELSEWHERE, KILLED_STARTER, declare, fake_launcher, started
from tests.support.jobs.managed_job import managed_job
from tests.support.processes import child
from tests.support.refuses import refuses
from tests.support.waiting import poll


def start(folder: Path, job: Job) -> int:
    pid = start_job(job, by=BY, launcher=fake_launcher(folder)).pid
    assert pid is not None
    return pid


def jvm_of(folder: Path, job: Job) -> ProcessId:
    """Start the job; the process that it calls its JVM."""
    start_job(job, by=BY, launcher=fake_launcher(folder))
    view = job.records().lease.view()
    assert view is not None and view.holder is not None
    (jvm,) = view.holder.processes
    return jvm


def stop(folder: Path, job: Job, **options: object) -> StopResult:
    return stop_job(job, by=BY, launcher=fake_launcher(folder), **options)  # type: ignore[arg-type]  # as given


def test_a_running_job_stops_at_a_boundary_and_stays_stopped(folder: Path) -> None:
    job = declare(folder)
    pid = start(folder, job)
    result = stop(folder, job, why="lunch")
    assert (result.state, result.how, result.epoch, result.batch) == ("stopped", "boundary", 1, 0)
    assert result.drained is None
    assert not ProcessId("python", pid, 0).is_living()
    status = job_status(job, launcher=fake_launcher(folder))
    assert (status.state, status.desired, status.desired_why) == ("stopped", "stopped", "lunch")
    assert status.operation is None
    event = job.records().last_event("stopped")
    assert event is not None and event["how"] == "boundary" and event["by"] == BY


def test_nothing_is_committed_after_the_savepoint_of_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver commits a batch every tenth of a second, up to the stop."""
    with managed_job(tmp_path, monkeypatch) as managed:
        managed.start(until=3)
        stopped = stop_job(managed.job, by=BY, savepoint=True)
        assert (stopped.state, stopped.how) == ("stopped", "boundary")
        kept = managed.repository.load("flights", stopped.savepoints["main"])
        assert kept.batch == stopped.batch == managed.last_batch() >= 3
        planned = max(int(one.name) for one in (managed.checkpoint / "offsets").glob("[0-9]*"))
        assert planned == kept.batch, "no batch was begun, either"


@pytest.mark.parametrize("goes", [True, False])
def test_the_savepoint_of_a_stop_is_taken_while_the_processes_end(
    folder: Path, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queries have ended when the lease is given back; the stop itself waits for the processes."""
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 0.5)
    leave = folder / "leave"
    job = declare(folder, "--period-s", "0.1", "--lingers", str(leave))
    running = jvm_of(folder, job)
    seen = []

    def taken(*args: Any, **options: Any) -> JobSavepoints:
        seen.append(running.is_living())
        if goes:
            leave.touch()
        return savepoint_job(*args, **options)

    monkeypatch.setattr("streambank.job.stop.savepoint_job", taken)
    result = stop(folder, job, savepoint=True, force_after_s=0.2 if not goes else 30.0)
    assert seen == [True], "the savepoint waited for the end of the process"
    assert (result.state, result.how) == ("stopped", "boundary")
    assert [one for one in result.warnings if "was killed" in one] == ([] if goes else [*result.warnings])
    assert bool(result.warnings) is not goes
    assert result.savepoints and not running.is_living()


def test_a_stop_whose_savepoint_fails_waits_for_the_processes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = folder / "leave"
    job = declare(folder, "--lingers", str(leave))
    running = jvm_of(folder, job)

    def fails(*args: object, **options: object) -> None:
        assert running.is_living(), "the fault is injected while the process ends"
        threading.Timer(1.0, leave.touch).start()
        raise StorageError("The disk is full.")

    monkeypatch.setattr("streambank.job.stop.savepoint_job", fails)
    with pytest.raises(StorageError, match="The disk is full"):
        stop(folder, job, savepoint=True)
    assert not running.is_living()


def test_stopping_a_stopped_job_says_so(folder: Path) -> None:
    job = declare(folder)
    never = stop(folder, job)
    assert (never.state, never.how, never.batch, never.epoch) == ("already-stopped", "none", None, None)
    start(folder, job)
    stop(folder, job)
    again = stop(folder, job)
    assert (again.state, again.how, again.batch) == ("already-stopped", "none", 0)


def test_a_drain_is_asked_of_the_driver_and_its_answer_passed_on(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = started(folder)
    caplog.set_level(logging.INFO, "streambank.job.stop")
    result = stop(folder, job, drain=True, drain_timeout_s=30)
    (said,) = {text for text in caplog.messages if text.startswith("Waiting until")}
    assert said.startswith("Waiting until job flights has processed what its sources hold")
    assert result.drained is True
    (request,) = job.records().requests.records.all()
    assert request.data["options"]["drain"] is True and request.data["options"]["drain_timeout_s"] == 30


def test_a_forced_stop_is_told_apart(folder: Path) -> None:
    job = started(folder, "--forced")
    assert stop(folder, job).how == "forced"


def test_a_batch_that_was_left_unfinished_is_told(folder: Path) -> None:
    job = started(folder)
    (folder / "checkpoints" / "flights" / "offsets" / "1").write_text("v1")
    result = stop(folder, job)
    assert (result.how, result.batch) == ("forced", 0)


@pytest.mark.parametrize("hang", ["deaf", "stopped"])
def test_a_driver_that_does_not_react_is_killed_in_the_end(
    folder: Path, hang: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 0.5)
    job = declare(folder, *(["--deaf"] if hang == "deaf" else []))
    pid = start(folder, job)
    if hang == "stopped":
        os.kill(pid, signal.SIGSTOP)
    result = stop(folder, job, force_after_s=0.2)
    assert (result.state, result.how) == ("stopped", "killed")
    assert job_status(job, launcher=fake_launcher(folder)).state == "stopped"
    assert start_job(job, by=BY, launcher=fake_launcher(folder)).epoch == 2


def test_a_driver_that_had_died_is_noticed_and_put_to_rest(folder: Path) -> None:
    job = declare(folder)
    os.kill(start(folder, job), signal.SIGKILL)
    poll(lambda: job_status(job, launcher=fake_launcher(folder)).state == "failed")
    result = stop(folder, job)
    assert (result.state, result.how) == ("already-stopped", "dead")
    assert job_status(job, launcher=fake_launcher(folder)).state == "stopped"


def test_a_driver_that_is_coming_up_is_ended(folder: Path) -> None:
    job = declare(folder, "--boot-s", "60")
    with child(KILLED_STARTER, folder) as starter:
        starter.wait(timeout=30)
    result = stop(folder, job)
    assert (result.state, result.how) == ("stopped", "killed")
    assert fake_launcher(folder).find(job.records()) == []


def test_a_request_to_an_earlier_driver_does_not_stop_the_next(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    start(folder, job)
    stop(folder, job)
    start(folder, job)
    records.requests.post("stop", epoch=1, by=BY)
    assert records.requests.open(2) == []
    assert start_job(job, by=BY, launcher=fake_launcher(folder)).epoch == 2


def test_a_restore_is_not_stopped(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    with records.lease.held("restore", by=BY), pytest.raises(RefusedError) as caught:
        stop(folder, job)
    assert caught.value.code == "lease-held"


def test_a_driver_elsewhere_that_does_not_answer_is_an_error_and_never_killed_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 0.5)
    job = declare(folder)
    theirs = JobControl(job.records().store, job.name, here=ELSEWHERE)
    claim = theirs.lease.acquire([ProcessId("python", os.getpid(), 1)], ttl_s=60.0)
    beating = threading.Event()

    def beat() -> None:
        while not beating.wait(0.05):
            claim.beat()

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with refuses(StorageError, "stop-timeout", match="elsewhere"):
            stop(folder, job, force_after_s=0.2)
    finally:
        beating.set()
        thread.join()


def test_a_stop_waits_for_a_start_that_is_under_way_and_its_driver_runs_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = folder / "gate"
    job = declare(folder, "--boot-until", str(gate))
    caplog.set_level(logging.INFO, "streambank.control")
    with ThreadPoolExecutor() as threads:
        starting = threads.submit(start_job, job, by=BY, launcher=fake_launcher(folder))
        poll(lambda: job.records().last_event("launched"))
        stopping = threads.submit(stop, folder, job)
        poll(lambda: any(text.startswith("Waiting for a start to end: process") for text in caplog.messages))
        gate.touch()
        started, result = starting.result(30), stopping.result(30)
    # The driver that came up meanwhile saw that it is superseded, and ran nothing.
    assert (started.state, result.state, result.how) == ("not-desired", "already-stopped", "none")


def test_another_operation_keeps_the_stop_waiting_but_what_was_meant_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 0.2)
    job = declare(folder)
    with job.records().operation("restore", by=BY), pytest.raises(ConflictError, match="restore"):
        stop(folder, job, force_after_s=0.1)
    assert job.records().is_stopped()


def test_a_stop_says_that_the_driver_had_died_and_says_it_once(folder: Path) -> None:
    job = declare(folder)
    os.kill(start(folder, job), signal.SIGKILL)
    poll(lambda: job_status(job, launcher=fake_launcher(folder)).state == "failed")
    first, second = stop(folder, job), stop(folder, job)
    assert (first.state, first.how) == ("already-stopped", "dead")
    assert (second.state, second.how) == ("already-stopped", "none")


def test_how_far_back_a_stop_reads_events_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the newest ones do not say, the lease does."""
    monkeypatch.setattr("streambank.job.stop.RECENT_EVENTS", 50)
    job = declare(folder, "--fail", "no route", "--die-after-lease", "1")
    with pytest.raises(StreambankError):
        start(folder, job)
    poll(lambda: job_status(job, launcher=fake_launcher(folder)).state == "failed")
    records, reads = job.records(), list[str]()
    for _ in range(500):
        records.record_event("savepoint-taken")
    opened = LocalStore.open

    def open_it(self: LocalStore, key: str) -> Any:
        reads.append(f"{self.uri}/{key}")
        return opened(self, key)

    monkeypatch.setattr(LocalStore, "open", open_it)
    assert stop(folder, job).how == "dead"
    assert 0 < sum("/events/" in key for key in reads) <= 250, "100 of them say why it failed"
    assert stop(folder, job).how == "none", "it was said"


def test_a_stop_says_why_the_driver_had_failed(folder: Path) -> None:
    job = declare(folder, "--fail", "no route to password=swordfish77", "--die-after-lease", "1")
    with pytest.raises(StreambankError):
        start(folder, job)
    poll(lambda: job_status(job, launcher=fake_launcher(folder)).state == "failed")
    result = stop(folder, job)
    assert result.how == "dead" and len(result.warnings) == 1
    assert "no route to" in result.warnings[0] and "swordfish77" not in result.warnings[0]
