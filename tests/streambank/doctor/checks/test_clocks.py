"""Clocks that are apart, and clocks that only seem so."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from streambank.checkpoint.closure import ClosurePlanner
from streambank.checkpoint.index import CheckpointIndex
from streambank.control.progress import ProgressRecord
from streambank.core.errors import StorageError
from streambank.core.units import from_epoch_ms, to_json_time
from streambank.doctor.checks.clocks import (
    check_driver,
    check_files,
    check_happened,
    check_planned,
    check_service,
    check_taken,
)
from streambank.storage.memory import MemoryStore
from streambank.storage.store import FileInfo
from tests.support.checkpoint.doctor_inputs import found, skipped
from tests.support.checkpoint.recorded import checkpoint
from tests.support.repository.repositories import manifest_of
from tests.support.sla.progress_records import at

SECOND = timedelta(seconds=1)


def stamped(written: datetime) -> dict[str, FileInfo]:
    """A recorded checkpoint whose files were all written at one time."""
    stamp = int(written.timestamp() * 1e9)
    listing = checkpoint("4.3.0/hdfs-window").listing()
    return {path: replace(info, mtime_ns=stamp) for path, info in listing.items()}


@pytest.mark.parametrize(("ahead_s", "expected"), [(0, False), (4, False), (6, True), (-3600, False)])
def test_files_that_are_newer_than_now(ahead_s: int, expected: bool) -> None:
    assert bool(found(check_files(stamped(at(ahead_s)), at(0)))) == expected
    unknown = {path: replace(info, mtime_ns=0) for path, info in stamped(at(0)).items()}
    assert not [*check_files(unknown, at(0))] and not [*check_files({}, at(0))]


@pytest.mark.parametrize(("later_s", "expected"), [(0, False), (-4, False), (-6, True), (3600, False)])
def test_a_batch_that_was_written_before_it_was_planned(later_s: int, expected: bool) -> None:
    files = checkpoint("4.3.0/hdfs-window")
    planned = from_epoch_ms(
        ClosurePlanner(CheckpointIndex.build(files.listing()), files.read)
        .files.offsets("offsets/13")
        .timestamp_ms
    )
    assert planned is not None
    planner = ClosurePlanner(CheckpointIndex.build(stamped(planned + later_s * SECOND)), files.read)
    seen = found(check_planned(planner, 13))
    assert bool(seen) == expected
    if expected:
        assert seen["clock-skew"].file == "offsets/13" and "6 s earlier" in seen["clock-skew"].cause
    assert not [*check_planned(planner, None)]


def test_a_record_that_its_driver_wrote_later_than_now() -> None:
    record = ProgressRecord(at(10), 1, "main", "run-1", 7, {})
    assert "batch 7" in found(check_driver(record, at(0)))["clock-skew"].cause
    assert not [*check_driver(record, at(8))] and not [*check_driver(None, at(0))]


class Service(MemoryStore):
    """A service with its own clock, or one that refuses."""

    prefix = ""
    says: datetime | None = None

    def lifecycle_rules(self) -> tuple[()]:
        return ()

    def server_time(self) -> datetime:
        if self.says is None:
            raise StorageError("It says no time.", code="storage", hint="Look by hand.")
        return self.says


@pytest.mark.parametrize(
    ("ahead_s", "expected"), [(0, False), (5, False), (7, True), (-5, False), (-7, True)]
)
def test_the_clock_of_a_service(ahead_s: int, expected: bool) -> None:
    service = Service()
    service.says = at(ahead_s)
    assert bool(found(check_service(service, lambda: at(0)))) == expected


def test_a_service_without_a_clock_is_said_and_a_disk_has_none() -> None:
    assert skipped(check_service(Service(), lambda: at(0)))[0].why == "It says no time."
    assert not [*check_service(MemoryStore(), lambda: at(0))]


def test_savepoints_and_events_of_a_time_that_has_not_come() -> None:
    now = at(0)
    ahead = manifest_of(batch=8, taken_at=at(7200))
    (saved,) = check_taken([ahead, manifest_of(batch=9, taken_at=now)], now)
    assert (saved.code, saved.file) == ("time-in-the-future", f"savepoint {ahead.savepoint}")
    events = [{"kind": "launched", "at": to_json_time(at(second))} for second in (-60, 3, 7200)]
    (event,) = check_happened([*events, {"kind": "old"}, {"at": "soon"}], now)
    assert event.code == "time-in-the-future" and event.cause.startswith("1 of the newest events")
    assert not [*check_taken([], now), *check_happened(events[:2], now)]
