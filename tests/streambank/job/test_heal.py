"""A driver that makes no progress makes room for another one; whatever else happens comes first."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import ConflictError
from streambank.declaration.declaration import Job
from streambank.job.crash_loop import record_crash_loop
from streambank.job.heal import committed_batches, heal_job, is_still_unhealthy
from streambank.job.health import Unhealthy
from streambank.job.restart import RestartResult, restart_job
from streambank.job.start import StartResult, start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from streambank.sla.judge.recoveries import recoveries
from tests.support.jobs.declared import BY, declare, end_drivers, fake_launcher, started
from tests.support.sla.progress_records import at, line
from tests.support.waiting import poll

HUNG = ("--still-s", "5000")
"""50 minutes are allowed."""


def start(folder: Path, job: Job) -> StartResult:
    return start_job(job, by=BY, launcher=fake_launcher(folder))


def found(job: Job, **more: Any) -> Unhealthy:
    """What somebody who looks at the driver finds."""
    records = job.records()

    said = -1 if "--first" in job.args else 0

    def beating() -> int | None:
        view = records.lease.view()
        if view is None or "still_s" not in view.status or view.status["queries"]["main"]["batch"] != said:
            return None
        return view.beat.get("beat")

    beat = poll(beating)
    view = records.lease.view()
    assert view is not None
    return Unhealthy(view.epoch, beat, 0.0, committed_batches(job, records), "it hangs", **more)


def heal(folder: Path, job: Job, seen: Unhealthy) -> RestartResult:
    return heal_job(job, seen, by=BY, launcher=fake_launcher(folder))


def hung(folder: Path, *args: str) -> tuple[Job, Unhealthy]:
    """A job whose driver makes no progress, and what somebody who looks finds."""
    job = started(folder, *HUNG, *args)
    return job, found(job)


def events(job: Job, kind: str) -> list[dict[str, Any]]:
    return [one.data for one in job.records().events() if one.data["kind"] == kind]


def requests(job: Job) -> list[int]:
    return [int(one.data["epoch"]) for one in job.records().requests.records.all()]


def test_another_driver_takes_over_from_one_that_makes_no_progress_and_the_records_tell(folder: Path) -> None:
    job, seen = hung(folder)
    status = job_status(job, launcher=fake_launcher(folder)).health
    assert status is not None and status.state == "unhealthy"

    result = heal(folder, job, seen)

    assert (result.state, result.how, result.stopped_epoch, result.start.epoch) == (
        "restarted",
        "boundary",
        1,
        2,
    )
    (unhealthy,) = events(job, "unhealthy")
    assert (unhealthy["epoch"], unhealthy["query"], unhealthy["still_s"]) == (1, "main", 5000.0)
    assert "3,000 s are allowed" in unhealthy["why"]
    (asked,) = events(job, "restart-asked")
    assert asked["why"] == "unhealthy: it hangs"
    (restarted,) = events(job, "restarted")
    assert (restarted["epoch"], restarted["cause"], restarted["how"]) == (2, "health", "boundary")
    desired = job.records().desired()
    assert desired is not None and desired.state == "running"
    # It is told as what it was, and counts from the moment at which the first driver was asked.
    poll(lambda: [one for one in events(job, "driver-started") if one["epoch"] == 2])
    job.records().store.write("progress/main/0000000001.jsonl", line(1, 10**8, epoch=2) + b"\n")
    (recovery,) = recoveries(job.records())
    assert (recovery.kind, recovery.cause, recovery.at) == ("restart", "health", at(10**8))
    assert recovery.began_at.isoformat(timespec="milliseconds")[:23] == restarted["asked_at"][:23]


def test_one_that_has_got_on_since_is_left_alone(folder: Path) -> None:
    job, seen = hung(folder, "--recovers", str(folder / "again"))
    assert is_still_unhealthy(job, seen)
    (folder / "again").touch()
    poll(lambda: (view := job.records().lease.view()) is not None and view.status["still_s"] == 0)

    assert not is_still_unhealthy(job, seen)
    assert heal(folder, job, seen).state == "not-needed"
    assert (requests(job), events(job, "unhealthy"), events(job, "restart-asked")) == ([], [], [])


def test_one_whose_batches_appear_is_left_alone_though_it_does_not_notice_them(folder: Path) -> None:
    job, seen = hung(folder)
    (folder / "checkpoints/flights/commits/1").write_text("v1\n{}")

    assert heal(folder, job, seen).state == "not-needed"
    assert requests(job) == []


def test_a_driver_that_has_come_since_is_never_touched(folder: Path) -> None:
    job, seen = hung(folder)
    restart_job(job, by=BY, launcher=fake_launcher(folder))
    assert not is_still_unhealthy(job, seen)

    result = heal(folder, job, seen)

    assert (result.start.state, result.start.epoch, result.stopped_epoch) == ("already-running", 2, None)
    assert requests(job) == [1]
    assert events(job, "unhealthy") == []


def test_what_somebody_stopped_stays_stopped(folder: Path) -> None:
    job, seen = hung(folder)
    job.records().set_desired("stopped", by=BY)
    assert not is_still_unhealthy(job, seen)
    assert heal(folder, job, seen).state == "not-desired"
    assert requests(job) == []
    stop_job(job, by=BY, launcher=fake_launcher(folder))

    assert heal(folder, job, seen).state == "not-desired"
    view = job.records().lease.view()
    assert view is not None and (view.epoch, view.free) == (1, True)


def test_nothing_is_done_and_nothing_waited_for_while_another_operation_has_the_job(folder: Path) -> None:
    job, seen = hung(folder)

    with job.records().operation("restore", by=BY):
        assert not is_still_unhealthy(job, seen)
        with pytest.raises(ConflictError) as caught:
            heal(folder, job, seen)

    assert caught.value.code == "operation-in-progress"
    assert (requests(job), events(job, "restart-asked")) == ([], [])


def test_of_two_that_saw_it_one_restarts(folder: Path) -> None:
    job, seen = hung(folder)
    results: list[object] = []

    def work() -> None:
        try:
            results.append(heal(folder, job, seen).start.epoch)
        except ConflictError as error:
            results.append(error.code)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(job.records().lease.recent_launches()) == 2
    assert requests(job) == [1]
    assert set(results) <= {2, "operation-in-progress"} and 2 in results


@pytest.mark.storm
def test_a_frozen_driver_is_killed_and_one_that_goes_on_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambank.job.stop._MARGIN_S", 1.0)
    job = declare(folder, "--still-s", "1", more='[jobs.flights.stop]\nforce_after = "100ms"\n')
    pid = start(folder, job).pid
    assert pid is not None
    seen = found(job)
    os.kill(pid, signal.SIGSTOP)
    poll(lambda: (Path("/proc") / str(pid) / "stat").read_text().split()[2] == "T")
    frozen = Unhealthy(1, found(job).beat, 4000.0, seen.batches, "frozen")
    os.kill(pid, signal.SIGCONT)
    poll(lambda: found(job).beat != frozen.beat)
    assert heal(folder, job, frozen).state == "not-needed"
    os.kill(pid, signal.SIGSTOP)
    poll(lambda: (Path("/proc") / str(pid) / "stat").read_text().split()[2] == "T")

    result = heal(folder, job, Unhealthy(1, found(job).beat, 4000.0, seen.batches, "frozen"))

    assert (result.state, result.how, result.start.epoch) == ("restarted", "killed", 2)


@pytest.mark.storm
def test_a_driver_that_died_meanwhile_is_replaced(folder: Path) -> None:
    job, seen = hung(folder)
    end_drivers(job.records())

    result = heal(folder, job, seen)

    assert (result.state, result.how, result.start.epoch) == ("started", "dead", 2)
    assert events(job, "unhealthy") == []


def test_a_crash_loop_is_told_with_the_last_error_and_the_last_savepoint(folder: Path) -> None:
    job = declare(folder, "--last-words", "ValueError: password=hunter2hunter2", "--die-before-lease", "9")
    with pytest.raises(Exception, match="before its first batch"):
        start(folder, job)

    loop = record_crash_loop(
        job, why="3 drivers in a row ended", by=BY, failures=3, launcher=fake_launcher(folder)
    )

    assert "Last error: ValueError: password=***." in loop.message
    assert "no repository" in loop.message
    assert "desired state is still running" in loop.message
    assert "hunter2" not in str(loop)
    (event,) = events(job, "crash-loop")
    assert (event["failures"], event["error"], event["by"]) == (3, "ValueError: password=***", BY)
    desired = job.records().desired()
    assert desired is not None and desired.state == "running"


def test_a_first_batch_that_takes_long_has_more_time_after_each_driver_that_came_to_nothing(
    folder: Path,
) -> None:
    job = started(folder, *HUNG, "--first")
    seen = found(job, failures=1)
    job_of_long_first = declare(folder, more='[jobs.flights.health]\ntimeout = "5m"\n')
    assert job_of_long_first.health.window_s(first=True) == 3000

    assert heal(folder, job_of_long_first, seen).state == "not-needed"
    assert heal(folder, job_of_long_first, found(job)).state == "restarted"
