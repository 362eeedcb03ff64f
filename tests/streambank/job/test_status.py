from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.control.marker import Marker, write_marker
from streambank.control.processes import ProcessId, child_process, this_process
from streambank.control.progress import ProgressWriter
from streambank.control.records import encode_json
from streambank.core.errors import FormatError, StorageError
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.alive import job_life
from streambank.job.liveness import life_of
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.job.status import JobStatus, job_status
from streambank.job.stop import stop_job
from streambank.storage import local_path
from streambank.storage.local.store import LocalStore
from tests.support.jobs.declared import BY, ELSEWHERE, declare, fake_launcher
from tests.support.refuses import refuses
from tests.support.sla.progress_records import line
from tests.support.waiting import poll


def status(folder: Path, job: Job) -> JobStatus:
    found = job_status(job, launcher=fake_launcher(folder))
    json.dumps(found.to_dict())
    return found


def test_a_job_that_nobody_touched(folder: Path) -> None:
    job = declare(folder)
    found = status(folder, job)
    assert (found.state, found.desired, found.epoch, found.batch) == ("never-started", None, None, None)
    assert found.queries["main"].checkpoint == job.checkpoint
    assert not (folder / "repository").exists(), "looking writes nothing"


def test_a_life_from_start_to_stop(folder: Path) -> None:
    job = declare(folder)
    started = start_job(job, by=BY, why="monday", launcher=fake_launcher(folder))
    found = status(folder, job)
    assert (found.state, found.desired, found.desired_why) == ("running", "running", "monday")
    assert (found.pid, found.epoch, found.batch) == (started.pid, 1, 0)
    assert found.log == started.log and found.launch_id == started.launch_id
    assert found.beat_age_s is not None and found.beat_age_s < 20
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    found = status(folder, job)
    assert (found.state, found.desired, found.batch) == ("stopped", "stopped", 0)


def test_a_dead_driver_and_a_dead_lock_are_seen(folder: Path) -> None:
    job = declare(folder)
    started = start_job(job, by=BY, launcher=fake_launcher(folder))
    assert started.pid is not None
    os.kill(started.pid, signal.SIGKILL)
    found = poll(lambda: (now := status(folder, job)).state == "failed" and now)
    assert isinstance(found, JobStatus) and "none of its processes" in found.why
    records = job.records()
    gone = ProcessId("operation", 2**22 - 9, 1)
    from streambank.control.claims import Claim, Holder

    claim = records.operation_lock.claims.claim(
        Holder(records.here, (gone,), {"operation": "restore", "by": BY})
    )
    assert isinstance(claim, Claim)
    found = status(folder, job)
    assert (found.operation, found.operation_state, found.operation_by) == ("restore", "dead", BY)


def add_events(records: JobControl, count: int) -> None:
    """So many events after those that are there, without a listing for each."""
    first = records.event_records.numbers()[-1] + 1
    for number in range(first, first + count):
        event = {"kind": "savepoint-taken", "at": to_json_time(utc_now()), "batch": number}
        records.store.write(records.event_records.key(number), encode_json(event))


def test_the_events_since_the_last_launch_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = declare(folder)
    started = start_job(job, by=BY, launcher=fake_launcher(folder))
    assert started.pid is not None
    os.kill(started.pid, signal.SIGKILL)
    assert poll(lambda: status(folder, job).state == "failed")
    records, reads = job.records(), list[str]()
    add_events(records, 300)
    opened = LocalStore.open

    def open_it(self: LocalStore, key: str) -> Any:
        reads.append(f"{self.uri}/{key}")
        return opened(self, key)

    monkeypatch.setattr(LocalStore, "open", open_it)
    found = status(folder, job)
    assert found.state == "failed" and "none of its processes" in found.why
    assert sum("/events/" in key for key in reads) <= 90  # the newest: since when it is down, and why

    # The next driver never holds the lease, and events say how it ended.
    monkeypatch.setattr("streambank.job.status.RECENT_EVENTS", 60)
    job = declare(folder, "--die-before-lease", "3")
    with pytest.raises(StorageError, match="before its first batch"):
        start_job(job, by=BY, launcher=fake_launcher(folder))
    early = status(folder, job)
    assert (early.state, early.why) == ("failed", "its driver ended before it took the lease")
    assert early.launch_id not in (None, started.launch_id)
    kept = local_path(records.store.uri)
    assert kept is not None
    os.utime(kept / "launches" / f"{early.launch_id}.json", (1, 1))  # as those of copied records may be
    assert replace(status(folder, job), beat_age_s=early.beat_age_s) == early
    os.utime(kept / "launches" / f"{early.launch_id}.json")
    add_events(records, 100)
    reads.clear()
    lost = status(folder, job)
    assert (lost.state, lost.launch_id) == ("unknown", early.launch_id)
    assert lost.why.endswith("never took the lease, and the newest 60 events do not say how it ended")
    assert sum("/events/" in key for key in reads) <= 130


def test_a_restore_at_work_is_seen(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    with records.operation("restore", by=BY), records.lease.held("restore", by=BY):
        found = status(folder, job)
    assert (found.state, found.operation, found.operation_state) == ("stopped", "restore", "live")
    assert "restore holds the lease" in found.why


def test_who_had_the_lease_last_is_said_in_plain_words(folder: Path) -> None:
    job = declare(folder)
    lease = job.records().lease
    python = [ProcessId("python", os.getpid(), 1)]
    lease.acquire(python).release("released", exit_code=0)
    assert status(folder, job).why == "its driver ended without an error"
    with lease.held("restore", by=BY):
        pass
    found = status(folder, job).why
    assert found == "no driver runs since a restore had the lease: its holder ended and gave it back"
    claim = lease.acquire(python)
    lease.claims.end(claim.epoch, "broken", by=BY, why="its host burned")
    found = status(folder, job).why
    assert found.startswith("its driver runs no more: it was taken from its holder by ")
    assert found.endswith(": its host burned")


def test_an_application_that_ended_with_an_error_has_failed(folder: Path) -> None:
    job = declare(folder)
    claim = job.records().lease.acquire([ProcessId("python", os.getpid(), 1)])
    claim.release("released", exit_code=1)
    found = status(folder, job)
    assert (found.state, found.why) == ("failed", "its driver ended with exit code 1")


def test_a_driver_that_could_not_say_how_it_ended_was_not_stopped(folder: Path) -> None:
    """On a full disk, before its first heartbeat."""
    job = declare(folder)
    lease = job.records().lease
    claim = lease.acquire([this_process("python")], purpose="run")
    store, key = lease.claims.records.store, lease.claims.records.key
    store.link_from(store, key(claim.epoch), key(claim.epoch, ".end"))
    assert status(folder, job).state == "failed"


def test_what_ended_a_driver_is_its_innermost_cause(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    details = {"launch_id": "l1", "purpose": "run"}
    claim = records.lease.acquire([ProcessId("python", os.getpid(), 1)], details=details)
    outer = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. SQLSTATE: XXKST"
    )
    records.record_event(
        "query-ended",
        query="main",
        launch_id="l1",
        failure=f"{outer}\nCaused by: java.io.IOException: No space left on device",
    )
    claim.release("released", exit_code=1)
    cause = "its driver ended with exit code 1: java.io.IOException: No space left on device"
    assert (status(folder, job).state, status(folder, job).why) == ("failed", cause)
    life = job_life(records, utc_now(), queries=job.queries)
    assert [one.what for one in life.failures] == [cause]


def test_a_frozen_driver_is_said_to_be_frozen(folder: Path) -> None:
    job = declare(folder)
    with subprocess.Popen(["sleep", "600"]) as sleeps:
        job.records().lease.acquire([child_process(sleeps.pid, "python")])
        assert not (status(folder, job).health or pytest.fail()).why.startswith("its driver is frozen")
        sleeps.send_signal(signal.SIGSTOP)
        poll(lambda: "frozen" in str(status(folder, job).health))
        health = status(folder, job).health
        assert health is not None and health.state == "unhealthy"
        assert health.why.startswith(f"its driver is frozen: python {sleeps.pid} is stopped by a signal")
        assert status(folder, job).state == "running", "it holds the lease"
        sleeps.kill()


def test_progress_before_a_new_driver_is_named_with_its_time(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    records.store.write("progress/main/0000000001.jsonl", line(7, 60.0) + b"\n")
    claim = records.lease.acquire([this_process("python")])
    claim.beat({"state": "running", "still_s": 30.0, "queries": {"main": {"batch": -1, "still_s": 30.0}}})
    health = status(folder, job).health
    assert health is not None and health.why == (
        "query main has no batch yet since its driver began it 30 s ago; "
        "its last batch before was recorded at 2026-11-01T00:01:00.000Z"
    )


def test_a_declared_checkpoint_that_has_no_effect_is_named_by_status_and_savepoint(folder: Path) -> None:
    job = declare(folder, batches=3)
    job.records().generations().ensure_first(job.checkpoint, by=BY)
    assert status(folder, job).queries["main"].note == ""
    file = folder / "streaming_jobs.toml"
    file.write_text(file.read_text().replace("checkpoints/flights", "checkpoints/flights-new"))
    moved = load_jobs(file).job("flights")
    note = status(folder, moved).queries["main"].note
    assert note.startswith(f"The declared checkpoint {moved.checkpoint} has no effect")
    taken = savepoint_job(moved, by=BY).savepoints["main"]
    assert note in taken.warnings and taken.batch == 2


def test_the_batch_of_another_jobs_checkpoint_is_not_shown(folder: Path) -> None:
    job = declare(folder, batches=3)
    assert status(folder, job).batch == 2
    theirs = Marker("other", "main", 1, job.checkpoint, "file:///control/other", query_id="q")
    write_marker(job.checkpoint, theirs)
    found = status(folder, job)
    assert found.batch is None and found.queries["main"].batch is None
    assert found.queries["main"].note == f"The checkpoint {job.checkpoint} belongs to job other."


def test_a_driver_elsewhere_is_unknown_at_a_glance(folder: Path) -> None:
    job = declare(folder)
    theirs = JobControl(job.records().store, job.name, here=ELSEWHERE)
    theirs.lease.acquire([ProcessId("python", 1, 1), ProcessId("jvm", 2, 1)])
    found = status(folder, job)
    assert (found.state, found.host, found.pid, found.jvm_pid) == ("unknown", "elsewhere", 1, 2)


def test_what_spark_said_last_is_shown(folder: Path) -> None:
    job = declare(folder)
    records = job.records()
    records.record_query(None, {"query_id": "q-1", "sink": "FileSink[file:/out]"})
    writer = ProgressWriter(records.store, None, epoch=1)
    writer.add({"runId": "r", "batchId": 4, "eventTime": {"watermark": "2013-01-01T10:00:00.000Z"}})
    writer.flush()
    query = status(folder, job).queries["main"]
    assert (query.query_id, query.sink) == ("q-1", "FileSink[file:/out]")
    assert query.watermark == "2013-01-01T10:00:00.000Z" and query.progress_at is not None


def test_half_written_heartbeats_and_a_lost_launch_do_not_hinder(folder: Path) -> None:
    job = declare(folder)
    started = start_job(job, by=BY, launcher=fake_launcher(folder))
    stop_job(job, by=BY, launcher=fake_launcher(folder))
    records = folder / "repository.control" / "flights"
    (records / "lease" / "0000000001.beat.json").write_bytes(b'{"be')
    (records / "launches" / f"{started.launch_id}.json").unlink()
    found = status(folder, job)
    assert (found.state, found.beat_at, found.log) == ("stopped", None, None)


def test_a_damaged_desired_state_is_an_error(folder: Path) -> None:
    job = declare(folder)
    job.records().set_desired("running", by=BY)
    (folder / "repository.control" / "flights" / "desired" / "0000000001.json").write_bytes(b"")
    with refuses(FormatError, "damaged-record"):
        status(folder, job)


def has_begun(job: Job) -> bool:
    """Whether a heartbeat of its driver says so."""
    view = job.records().lease.view()
    driver = None if view is None else life_of(view, job.queries)
    return driver is not None and driver.has_begun


def test_of_a_driver_that_works_nothing_of_those_before_it_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = declare(folder, "--period-s", "0.05")
    launcher = fake_launcher(folder)
    for _ in range(3):
        start_job(job, by=BY, launcher=launcher)
        stop_job(job, by=BY, launcher=launcher)
    start_job(job, by=BY, launcher=launcher)
    poll(lambda: has_begun(job))
    read: list[str] = []
    records = job.records()
    opened = type(records.store).open

    def count(store: Any, key: str) -> Any:
        read.append(key)
        return opened(store, key)

    monkeypatch.setattr(type(records.store), "open", count)

    found = job_status(job, control=records)
    read_of_all = [*read]
    read.clear()
    seen = job_status(job, control=records, follow=False)

    assert (found.state, found.down_since, seen.state) == ("running", None, "running")
    assert not [key for key in read_of_all if key.startswith("events/")]
    assert {key for key in read_of_all if key.startswith("lease/") and key.endswith("4.json")}
    assert not [key for key in read_of_all if key.startswith(("lease/0000000001", "lease/0000000003"))]
    assert len(read_of_all) == len({*read_of_all}), "nothing is read twice"
    assert not [key for key in read if key.startswith(("events/", "launches/", "queries/", "progress/"))]
    assert seen.batch is not None


def test_a_driver_that_dies_is_down_at_the_next_look(folder: Path) -> None:
    job = declare(folder, "--period-s", "0.05")
    launcher = fake_launcher(folder)
    start_job(job, by=BY, launcher=launcher)
    poll(lambda: has_begun(job))
    assert status(folder, job).down_since is None
    driver = status(folder, job).pid
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    poll(lambda: not Path(f"/proc/{driver}").exists() or status(folder, job).state == "failed")

    found = status(folder, job)

    assert (found.state, found.down_since is not None) == ("failed", True)
    assert found.down_why.startswith("No driver has run since")
