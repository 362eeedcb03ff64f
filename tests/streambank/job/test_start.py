from __future__ import annotations

import json
import logging
import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.operation import OperationLock
from streambank.control.processes import ProcessId, this_process
from streambank.core.errors import ConflictError, FormatError, RefusedError, StorageError
from streambank.declaration.declaration import Job
from streambank.driver.installed import Installation
from streambank.driver.launcher import Handle
from streambank.driver.launchers.local import LocalLauncher
from streambank.driver.spec import read_launch
from streambank.job.start import StartResult, start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from tests.support.jobs.declared import (
    BY,
    ELSEWHERE,
    KILLED_STARTER,
    declare,
    fake_installation,
    fake_launcher,
    here,
)
from tests.support.processes import child, race
from tests.support.refuses import refuses
from tests.support.waiting import poll

RACE = """
import json, pathlib, sys
from streambank.declaration.load import load_jobs
from streambank.job.start import start_job
from tests.support.jobs.declared import fake_launcher
folder = pathlib.Path(sys.argv[1])
job = load_jobs(folder / "streaming_jobs.toml").job("flights")
launcher = fake_launcher(folder)
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps(start_job(job, by={"via": "race"}, launcher=launcher).to_dict()))
"""


def start(folder: Path, job: Job, **options: object) -> StartResult:
    return start_job(job, by=BY, launcher=fake_launcher(folder), **options)  # type: ignore[arg-type]  # as given


def _is_at(lock: OperationLock, epoch_and_state: tuple[int, str]) -> bool:
    view = lock.view()
    return view is not None and (view.epoch, view.state) == epoch_and_state


class OpensTheGate(LocalLauncher):
    """Lets a driver that waits for a gate boot on as soon as a start has seen it."""

    def __init__(self, gate: Path, installation: Installation) -> None:
        super().__init__(installation)
        self.gate = gate
        self.found: list[int] = []

    def find(self, control: JobControl) -> list[Handle]:
        handles = super().find(control)
        self.found.append(len(handles))
        self.gate.touch()
        return handles


class WaitsForTheLease(OpensTheGate):
    """Says who is there only when the driver that boots has taken the lease."""

    def find(self, control: JobControl) -> list[Handle]:
        handles = super().find(control)

        def held() -> bool:
            view = control.lease.view()
            return view is not None and not view.free

        poll(held)
        return handles


def launches(job: Job) -> list[str]:
    return list(job.records().store.names("launches"))


def test_a_first_start_waits_for_the_first_batch(folder: Path) -> None:
    job = declare(folder)
    result = start(folder, job, why="a test")
    assert (result.state, result.epoch, result.batch, result.generations) == ("started", 1, 0, {"main": 1})
    assert (result.queries, result.is_ready) == ({"main": "committed"}, True)
    assert result.pid is not None and result.pid != os.getpid() and result.host == here().host
    assert result.log is not None and "fake driver" in Path(result.log).read_text()
    records = job.records()
    desired, generation = records.desired(), records.generation()
    assert desired is not None and (desired.state, desired.why) == ("running", "a test")
    assert generation is not None and generation.location == job.checkpoint
    json.dumps(result.to_dict())


def test_the_driver_is_detached(folder: Path) -> None:
    result = start(folder, declare(folder))
    assert result.pid is not None
    assert os.getsid(result.pid) == os.getpgid(result.pid) != os.getsid(0)
    assert Path(f"/proc/{result.pid}/fd/0").readlink() == Path("/dev/null")


def test_a_second_start_finds_the_first_driver(folder: Path) -> None:
    job = declare(folder)
    first = start(folder, job)
    second = start(folder, job)
    assert (second.state, second.pid, second.epoch) == ("already-running", first.pid, 1)
    assert second.log == first.log
    assert len(launches(job)) == 1


def test_of_many_starters_one_launches(folder: Path) -> None:
    job = declare(folder, "--boot-s", "0.3")
    said = [json.loads(line) for line in race(RACE, 6, folder)]
    assert sorted(result["state"] for result in said) == ["already-running"] * 5 + ["started"]
    assert len({result["pid"] for result in said}) == 1
    assert len(launches(job)) == 1
    assert len(fake_launcher(folder).find(job.records())) == 1


def test_a_start_that_was_killed_leaves_a_driver_that_the_next_one_adopts(folder: Path) -> None:
    job = declare(folder, "--boot-until", str(folder / "gate"))
    with child(KILLED_STARTER, folder) as starter:
        assert starter.wait(timeout=30) == -signal.SIGKILL
    assert job_status(job, launcher=fake_launcher(folder)).state == "starting"
    (folder / "gate").touch()
    result = start(folder, job)
    assert (result.state, result.epoch) == ("already-running", 1)
    assert len(launches(job)) == 1


def test_another_spark_is_refused_under_its_name_before_anything_is_launched(folder: Path) -> None:
    job = declare(folder)
    version = fake_installation(folder).spark_home / "version.py"
    version.write_text('__version__: str = "3.4.4"\n')
    with refuses(FormatError, "spark-not-supported") as refused:
        start(folder, job)
    assert "Spark 3.4.4" in refused.value.message and "`python`" in refused.value.hint
    assert launches(job) == [] and job.records().desired() is None

    version.write_text('__version__: str = "4.3.0"\n')
    assert start(folder, job).state == "started"
    (launch,) = launches(job)
    assert read_launch(job.records(), launch.removesuffix(".json")).spark_version == "4.3.0"
    version.write_text('__version__: str = "3.4.4"\n')
    assert start(folder, job).state == "already-running", "a driver that runs is not asked"


def test_a_driver_that_takes_the_lease_while_a_start_looks_for_drivers_is_adopted(folder: Path) -> None:
    gate = folder / "gate"
    job = declare(folder, "--boot-until", str(gate))
    with child(KILLED_STARTER, folder) as starter:
        assert starter.wait(timeout=30) == -signal.SIGKILL
    launcher = WaitsForTheLease(gate, fake_installation(folder))
    result = start_job(job, by=BY, launcher=launcher)
    assert launcher.found == [1], "the driver was there before it had the lease"
    assert (result.state, result.epoch) == ("already-running", 1)
    assert len(launches(job)) == 1


def test_a_driver_that_was_killed_is_replaced_at_once(folder: Path) -> None:
    job = declare(folder)
    first = start(folder, job)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    poll(lambda: job_status(job).state != "running")  # a kill takes a moment
    second = start(folder, job)
    assert (second.state, second.epoch, second.batch) == ("started", 2, 1)


def test_a_driver_that_is_stopped_by_a_signal_is_not_replaced(folder: Path) -> None:
    job = declare(folder)
    first = start(folder, job)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGSTOP)
    second = start(folder, job)
    assert (second.state, second.pid) == ("already-running", first.pid)


def test_a_driver_that_froze_after_its_first_commit_is_found_going(folder: Path) -> None:
    """Its heartbeat never said that it triggered; the commit log does, to whoever asks."""
    job = declare(folder, "--stop-after-commit")
    first = start(folder, job, timeout_s=20)
    second = start(folder, job, timeout_s=20)
    assert (first.state, first.batch) == ("started", 0)
    assert (second.state, second.pid, second.batch) == ("already-running", first.pid, 0)


def test_a_start_right_after_a_stop_launches_anew(folder: Path) -> None:
    job = declare(folder)
    start(folder, job)
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    again = start(folder, job)
    assert (again.state, again.epoch) == ("started", 2)


def test_whoever_keeps_jobs_running_obeys_a_person_who_stopped_one(folder: Path) -> None:
    job = declare(folder)
    assert start(folder, job, obey_desired=True).state == "started"
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    kept = start(folder, job, obey_desired=True)
    assert (kept.state, kept.pid) == ("not-desired", None)
    assert kept.why.startswith("set to stopped by ")
    assert len(launches(job)) == 1
    assert start(folder, job).state == "started"


def test_a_stop_that_comes_while_starts_wait_is_obeyed(folder: Path) -> None:
    job = declare(folder, "--never-trigger")
    lock = job.records().operation_lock
    results: list[StartResult] = []

    def wait_for_first_batch() -> None:
        results.append(start(folder, job))

    waiting = [threading.Thread(target=wait_for_first_batch) for _ in range(2)]
    for turn, thread in enumerate(waiting, 1):
        thread.start()
        # Each has done its part under the lock, and waits for the first batch without it.
        ended = (turn, "ended")
        poll(partial(_is_at, lock, ended))
    assert stop_job(job, by=BY, launcher=fake_launcher(folder)).state == "stopped"
    for thread in waiting:
        thread.join(30)
    assert [result.state for result in results] == ["not-desired"] * 2
    assert len(launches(job)) == 1


def test_a_driver_that_dies_early_fails_the_start_with_its_last_words(folder: Path) -> None:
    job = declare(folder, "--die-before-lease", "3")
    with refuses(StorageError, "driver-died") as caught:
        start(folder, job)
    assert caught.value.message.endswith("exit code 3 before its first batch: it does not feel well.")
    assert "it does not feel well" in caught.value.hint
    assert job_status(job, launcher=fake_launcher(folder)).state == "failed"


def test_a_first_batch_that_was_never_planned_is_named_with_the_way_out(folder: Path) -> None:
    words = "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location should be empty on batch 0"
    job = declare(folder, "--die-before-lease", "1", "--last-words", words + "|  at Spark" * 40)
    with pytest.raises(StorageError) as caught:
        start(folder, job)
    assert (
        "`streambank doctor " in caught.value.hint and str(folder) in caught.value.hint.partition("` says")[0]
    )
    assert "unplanned-first-batch" in caught.value.hint
    assert caught.value.hint.count("  at Spark") == 30


def test_another_directory_of_a_file_source_is_named_with_the_way_out(folder: Path) -> None:
    words = "java.lang.IllegalArgumentException: Wrong basePath /in2 for the root path: file:/in/f0009.json"
    job = declare(folder, "--die-before-lease", "1", "--last-words", words)
    with pytest.raises(StorageError, match="Wrong basePath") as caught:
        start(folder, job)
    assert "go back to the old directory, or declare a new checkpoint" in caught.value.hint


def test_a_driver_that_dies_with_the_lease_in_hand_fails_the_start(folder: Path) -> None:
    job = declare(folder, "--die-after-lease", "7")
    with refuses(StorageError, "driver-died", match="exit code 7"):
        start(folder, job)


def test_a_query_that_fails_early_fails_the_start_with_what_it_said(folder: Path) -> None:
    job = declare(folder, "--die-after-lease", "1", "--fail", "Records have gone; token=abcdefgh\nMore")
    with pytest.raises(StorageError) as caught:
        start(folder, job)
    said = "exit code 1 before its first batch: Records have gone; token=***."
    assert caught.value.message.endswith(said)


def test_a_query_that_is_refused_after_the_first_batch_of_another_fails_the_start(folder: Path) -> None:
    with refuses(RefusedError, "driver-refused") as caught:
        start(folder, declare(folder, "--refused"))
    assert "exit code 8 soon after the first batch: streambank.core.errors.Refused" in caught.value.message


def test_a_query_that_fails_while_the_others_go_on_is_named(folder: Path) -> None:
    job = declare(folder, "--failed", "daily", more='queries = ["raw", "daily"]')
    with refuses(StorageError, "start-timeout") as caught:
        start(folder, job, timeout_s=3.0)
    assert caught.value.message.endswith(
        "is not ready after 3 s: first batch committed by 1 of 2 queries; failed before a first batch: daily "
        "(query daily failed: ValueError: what is this)."
    )


def test_an_application_without_a_query_is_named(folder: Path) -> None:
    job = declare(folder, "--run-to-end", "--never-trigger")
    result = start(folder, job)
    assert (result.state, result.queries) == ("finished", {"main": "not-started"})


def test_an_application_that_fails_before_it_starts_a_query_is_named(folder: Path) -> None:
    with pytest.raises(StorageError) as caught:
        start(folder, declare(folder, "--without-query", "1"))
    assert caught.value.message.endswith(
        "exit code 1 before it started a query: FileNotFoundError: no such folder: orders."
    )


def test_a_start_that_does_not_wait_promises_nothing(folder: Path) -> None:
    result = start(folder, declare(folder, "--never-trigger"), wait=False)
    assert (result.state, result.is_ready) == ("started", False)


def test_a_source_that_gives_no_row_twice_is_named_at_the_next_start(folder: Path) -> None:
    job = declare(folder)
    assert start(folder, job).warnings == ()
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    job.records().record_query(None, {"kafka": {"streams": ["TextSocketV2", "kafka", None]}})
    (warning,) = start(folder, job).warnings
    assert warning.startswith("Query main goes on after batch 0, but its source (socket) gives no row twice")


def test_a_driver_that_never_gets_going_is_left_alone_and_found_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = declare(folder, "--never-trigger")
    caplog.set_level(logging.INFO, "streambank.job")
    with refuses(StorageError, "start-timeout"):
        start(folder, job, timeout_s=3.0)
    launched, first, *_, last = caplog.messages
    assert launched.startswith("The driver of job flights was launched: launch-")
    assert first == "The driver of job flights is starting ..."
    assert last.startswith("Waiting for the first batch of job flights, process ")
    assert start(folder, job, wait=False).state == "already-running"
    assert len(launches(job)) == 1


def test_a_wait_that_lasts_says_how_long_the_last_driver_took(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.control.operation.LOGGED_EVERY_S", 0.3)
    caplog.set_level(logging.INFO, "streambank.job")
    job = declare(folder, "--never-trigger")
    start(folder, job, wait=False)

    def waited() -> str:
        caplog.clear()
        with pytest.raises(StorageError):
            start(folder, job, timeout_s=2.0)
        return [one for one in caplog.messages if "first batch" in one and "so far" in one][-1]

    assert waited().endswith(" s so far ..."), "there is none to compare with"
    # An earlier driver; the newest one was let wait by an upgrade.
    for launch, kind, at in (
        ("launch-1", "driver-started", "10:00:00"),
        ("launch-1", "first-trigger", "10:00:40"),
        ("launch-2", "driver-waiting", "10:01:00"),
        ("launch-2", "driver-started", "10:01:01"),
        ("launch-2", "first-trigger", "10:01:02"),
    ):
        event = {"kind": kind, "launch_id": launch, "at": f"2026-11-29T{at}.000Z"}
        job.records().event_records.append(event)
    assert waited().endswith(" s so far (the last one took 40 s) ...")


def test_an_application_that_runs_to_its_end_has_finished(folder: Path) -> None:
    result = start(folder, declare(folder, "--run-to-end"))
    assert result.state in ("finished", "started")  # as fast as it is, its first batch may have been seen
    job = declare(folder, "--run-to-end", "--never-trigger")
    poll(lambda: job_status(job, launcher=fake_launcher(folder)).state == "stopped")
    assert start(folder, job).state == "finished"


def test_nothing_starts_while_a_restore_works(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    with (
        records.operation("restore", by=BY),
        records.lease.held("restore", by=BY),
        pytest.raises(ConflictError, match="restore"),
    ):
        start(folder, job, timeout_s=0.5)
    assert launches(job) == []
    # The operation lock was broken, but the restore lives: the lease still keeps drivers out.
    with records.lease.held("restore", by=BY), pytest.raises(RefusedError) as caught:
        start(folder, job)
    assert caught.value.code == "lease-held"
    assert launches(job) == []


def test_a_launch_from_before_a_restore_does_not_run_on_the_old_generation(folder: Path) -> None:
    gate = folder / "gate"
    job = declare(folder, "--boot-until", str(gate))
    with child(KILLED_STARTER, folder) as starter:
        starter.wait(timeout=30)
    records = job.records()
    with records.operation("restore", by=BY) as operation:
        generations = records.generations()
        generations.switch(generations.propose(taken=lambda location: False), operation=operation)
    launcher = OpensTheGate(gate, fake_installation(folder))
    try:
        result = start_job(job, by=BY, launcher=launcher)
    except StorageError as error:
        assert "stale-launch" in error.hint or "moved on to generation 2" in error.hint
    else:
        # It was seen with the lease before it looked at the generation and gave up; so another was launched.
        assert (result.state, result.generations) == ("started", {"main": 2})
        assert len(launches(job)) == 2
    assert launcher.found[0] == 1


def test_a_changed_checkpoint_is_refused_and_nothing_is_launched(folder: Path) -> None:
    job = declare(folder)
    start(folder, job)
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    file = folder / "streaming_jobs.toml"
    file.write_text(file.read_text().replace("checkpoints/", "elsewhere/"))
    from streambank.declaration.load import load_jobs

    moved = load_jobs(file).job("flights")
    with refuses(RefusedError, "checkpoint-changed"):
        start(folder, moved)
    assert len(launches(job)) == 1


def test_a_driver_elsewhere_is_waited_for_and_then_replaced(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    theirs = JobControl(records.store, job.name, here=ELSEWHERE)
    claim = theirs.lease.acquire([ProcessId("python", 1, 1)], ttl_s=1.0)
    assert job_status(job, launcher=fake_launcher(folder)).state == "unknown"
    result = start(folder, job)
    assert (result.state, result.epoch) == ("started", 2)
    assert not claim.held()


def test_a_driver_that_lost_the_race_for_the_lease_is_no_failure(folder: Path) -> None:
    job = declare(folder, "--boot-until", str(folder / "gate"))
    records = job.records()
    fake = fake_launcher(folder)
    results: list[StartResult] = []
    waiting = threading.Thread(target=lambda: results.append(start(folder, job, wait=False)))
    waiting.start()
    poll(lambda: fake.find(records))
    # Somebody ran spark-submit by hand meanwhile, and was faster.
    claim = records.lease.acquire([this_process("python")], details={"launch_id": None})
    (folder / "gate").touch()
    waiting.join(30)
    assert [(result.state, result.pid) for result in results] == [("already-running", os.getpid())]
    claim.release()
