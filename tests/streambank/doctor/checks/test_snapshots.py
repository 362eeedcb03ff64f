"""State files that make the next start slow or uncertain."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from streambank.doctor.checks.snapshots import check_checksums, check_lag, check_restarts
from streambank.sla.history.point import Point
from tests.support.checkpoint.doctor_inputs import found, planned, skipped
from tests.support.checkpoint.recorded import checkpoint
from tests.support.sla.progress_records import at

INTERVAL = "spark.sql.streaming.stateStore.maintenanceInterval"
MIN_DELTAS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"


@pytest.mark.parametrize(
    ("changes", "period_s", "conf", "expected"),
    [
        (4, 60.0, {}, False),
        (50, 60.0, {}, False),
        (51, 60.0, {}, True),
        (51, 0.1, {}, False),
        (2999, 0.1, {}, False),
        (3001, 0.1, {}, True),
        (51, 0.1, {INTERVAL: "1s", MIN_DELTAS: "5"}, True),
        (51, 60.0, {MIN_DELTAS: "20"}, False),
        (51, 1.0, {INTERVAL: "2min"}, False),
    ],
)
def test_a_snapshot_is_late_by_versions_and_by_the_clock(
    changes: int, period_s: float, conf: dict[str, str], expected: bool
) -> None:
    closure, _ = planned("4.3.0/hdfs-window")
    (one,) = closure.operators
    (store,) = one.stores
    first, second = store.parts
    parts = (first, replace(second, change_files=changes, change_bytes=7000))
    late = replace(closure, operators=(replace(one, stores=(replace(store, parts=parts),)),))
    seen = found(check_lag(late, period_s, conf))
    assert set(seen) == ({"snapshots-lagging"} if expected else set())
    if expected:
        finding = seen["snapshots-lagging"]
        assert finding.file == "state/0/1" and f"{changes:,} changes since its newest" in finding.cause
        assert "1 store(s)" in finding.cause and "7 kB" in finding.cause
    assert not [*check_lag(late, None, conf)], "without times nobody can tell"


def test_missing_checksums_are_a_warning_only_where_spark_writes_some() -> None:
    closure, planner = planned("4.3.0/ids-changelog-window")
    listing = planner.index.listing
    assert not [*check_checksums(closure, listing)]
    files = checkpoint("4.3.0/ids-changelog-window")
    (gone, *_) = [f"{file.path}.crc" for file in closure.files if file.role == "state-changelog"]
    finding = found(check_checksums(closure, files.but(gone).listing()))["missing-checksums"]
    assert finding.severity == "warning" and finding.file == gone.removesuffix(".crc")
    assert finding.cause.startswith("1 of ")
    old, planner = planned("4.3.0/hdfs-window")
    finding = found(check_checksums(old, planner.index.listing))["missing-checksums"]
    assert finding.severity == "info" and "format 1 has none" in finding.cause
    stateless, planner = planned("4.3.0/stateless")
    assert not [*check_checksums(stateless, planner.index.listing)]


def runs(*hours_ago: float) -> list[Point]:
    """A batch of its own run at each of these times."""
    return [
        Point(at(0) - timedelta(hours=ago), number, f"run-{number}") for number, ago in enumerate(hours_ago)
    ]


@pytest.mark.parametrize(
    ("name", "ago", "expected"),
    [
        ("4.3.0/rocksdb-window", (30, 3, 2, 1), True),
        ("4.3.0/hdfs-window", (4, 3, 2, 1), True),
        ("4.3.0/rocksdb-window", (30, 29, 2, 1), False),
        ("4.3.0/rocksdb-window", (3, 2, 1), False),
        ("4.3.0/ids-window", (30, 3, 2, 1), False),
        ("4.3.0/stateless", (30, 3, 2, 1), False),
    ],
)
def test_restarts_count_on_a_checkpoint_that_uses_names_again(
    name: str, ago: tuple[float, ...], expected: bool
) -> None:
    closure, _ = planned(name)
    seen = found(check_restarts(closure, runs(*ago), at(0), managed=True))
    assert set(seen) == ({"restarts-on-format-1"} if expected else set())
    if expected:
        assert "within the last 24 hours (runs run-" in seen["restarts-on-format-1"].cause


def test_one_run_of_many_batches_is_no_restart_and_without_records_nobody_knows() -> None:
    closure, _ = planned("4.3.0/rocksdb-window")
    points = [Point(at(number), number, "run-1") for number in range(50)]
    assert not [*check_restarts(closure, points, at(60), managed=True)]
    (told,) = skipped(check_restarts(closure, points, at(60), managed=False))
    assert "restarted" in told.what
