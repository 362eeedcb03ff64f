"""State files that make the next start slow or uncertain: old snapshots, no checksums, reused names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from streambank.checkpoint.closure import Closure
from streambank.core.errors import InputError
from streambank.core.finding import Finding
from streambank.core.json_text import is_whole_number
from streambank.core.units import parse_duration_s, say_bytes, say_duration
from streambank.declaration.sla import DEFAULT_MIN_DELTAS, MIN_DELTAS
from streambank.doctor.subject import NO_PROGRESS, CheckResult, SkippedCheck
from streambank.sla.history.point import Point
from streambank.storage.store import FileInfo

INTERVAL = "spark.sql.streaming.stateStore.maintenanceInterval"
DEFAULT_INTERVAL_S = 60.0
LATE = 5
"""A snapshot is late by so many times of what is due (Spark itself warns of five times as many versions)."""
MOST_RESTARTS = 3
_DAY = timedelta(days=1)


def check_lag(closure: Closure, batch_period_s: float | None, conf: Mapping[str, str]) -> Iterator[Finding]:
    """Partitions whose newest snapshot is far behind what Spark's maintenance should have made."""
    if batch_period_s is None:
        return
    due = _whole(conf.get(MIN_DELTAS)) or DEFAULT_MIN_DELTAS
    interval_s = _seconds(conf.get(INTERVAL)) or DEFAULT_INTERVAL_S
    # Maintenance comes by the clock, so batches of a moment may well be many since its last visit.
    most = LATE * max(due, interval_s / batch_period_s)
    late = [
        (part.change_files, part.change_bytes, f"state/{operator.operator}/{part.partition}", store.store)
        for operator in closure.operators
        for store in operator.stores
        for part in store.parts
        if part.change_files > most
    ]
    if not late:
        return
    files, _, folder, store_name = max(late)
    total = sum(size_bytes for _, size_bytes, _, _ in late)
    yield Finding(
        "snapshots-lagging",
        "warning",
        folder if store_name == "default" else f"{folder}/{store_name}",
        f"{len(late)} store(s) have no snapshot of the last {most:,.0f} batches; this one has {files:,} "
        f"changes since its newest, all of them together {say_bytes(total)}. A snapshot is due after {due} "
        f"changes and {say_duration(interval_s)}, which is {interval_s / batch_period_s:,.0f} batches.",
        "The next start of the query replays all these changes, one file after the other, before its first "
        "batch.",
        "Look for errors of the maintenance task in the driver's and executors' logs; if there are none, set "
        "spark.sql.streaming.stateStore.numStateStoreMaintenanceThreads higher.",
    )


def check_checksums(closure: Closure, listing: Mapping[str, FileInfo]) -> Iterator[Finding]:
    """State files without Spark's own checksum."""
    if not closure.operators:
        return
    files = [file.path for file in closure.files if file.role in ("state-snapshot", "state-changelog")]
    bare = [path for path in files if f"{path}.crc" not in listing]
    if not bare:
        return
    old = closure.spark.checkpoint_format < 2
    yield Finding(
        "missing-checksums",
        "info" if old else "warning",
        bare[0],
        f"{len(bare)} of {len(files)} state files of batch {closure.batch} have no checksum of Spark "
        "beside them" + (" (checkpoint format 1 has none)." if old else "."),
        "Spark does not notice a changed byte that still decompresses; savepoints do, as they hash every "
        "file.",
        "Verify savepoints in full. Spark 4.1 and newer write checksums for checkpoint format 2 "
        "(RocksDB), unless spark.sql.streaming.checkpoint.fileChecksum.enabled is false.",
    )


def check_restarts(
    closure: Closure, points: Sequence[Point], now: datetime, *, managed: bool
) -> Iterator[CheckResult]:
    """Checkpoint format 1, which uses names of state files again, under a driver that comes and goes.

    Args:
        managed: Whether the history is the runner's, which knows one driver from another.
    """
    if not closure.operators or closure.spark.checkpoint_format > 1:
        return
    if not managed:
        yield SkippedCheck("how often the query is restarted, on a checkpoint of format 1", *NO_PROGRESS)
        return
    runs = dict.fromkeys(point.run_id for point in points if point.run_id and now - point.at <= _DAY)
    before = {point.run_id for point in points if now - point.at > _DAY}
    starts = [run for run in runs if run not in before]
    if len(starts) - (not before) < MOST_RESTARTS:
        return
    yield Finding(
        "restarts-on-format-1",
        "warning",
        "commits",
        f"The query was started {len(starts)} times within the last 24 hours (runs {', '.join(starts[:3])}, "
        "...), and its checkpoint has format 1.",
        "A batch that is tried again writes its state under the same names: an executor of the old driver "
        "that still lives can replace what the new one has committed.",
        "Find what ends the driver: its log says so. For a query on RocksDB that starts "
        "from nothing, set spark.sql.streaming.stateStore.checkpointFormatVersion=2, which names each "
        "attempt's files apart.",
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and is_whole_number(text.strip()) else None


def _seconds(text: str | None) -> float | None:
    """A duration as Spark takes it: milliseconds without a unit."""
    if text is None:
        return None
    if is_whole_number(text.strip()):
        return int(text) / 1000
    try:
        return parse_duration_s(text.strip().replace("min", "m"))
    except InputError:
        return None
