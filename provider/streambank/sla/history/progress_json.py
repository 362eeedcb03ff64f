"""One batch's progress, as Spark 3.5 to 4.3 report it, turned into metrics.

Whatever is missing, or is of another kind than it should be, is left out; nothing in a record makes this
fail. Spark lists stateful operators in the order of their ids: it numbers the plan from the sink on, and
collects their progress by the same walk (`IncrementalExecution`, `ProgressContext`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from streambank.control.progress import ProgressRecord
from streambank.core.units import time_or_none
from streambank.sla.history.point import Point, over_all

_SUMMED = {
    "state_rows": "numRowsTotal",
    "state_memory_bytes": "memoryUsedBytes",
    "updated_rows": "numRowsUpdated",
    "removed_rows": "numRowsRemoved",
    "dropped_rows": "numRowsDroppedByWatermark",
}
_DURATIONS = {"batch_s": "triggerExecution", "wal_s": "walCommit", "commit_s": "commitOffsets"}
_CALLS = {"get_ms": "rocksdbGet", "put_ms": "rocksdbPut"}
_LAST_UPLOADED = "SnapshotLastUploaded."
_NO_WATERMARK = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 1 << 63
_CLOCK_SLACK = timedelta(seconds=1)


class Measuring:
    """Turns records of one query, oldest first, into points.

    It remembers of the batches before only what the next point needs: when the last one ended, and with which
    batch its run began.

    Args:
        run_id: The run that the first record belongs to, where it began before that; None where nobody knows.

    Attributes:
        run_began: The first batch of the run that the last record belongs to.
    """

    def __init__(self, run_id: str | None = None, began: int = 0) -> None:
        self._batch: int | None = None
        self._end: datetime | None = None
        self._run = run_id
        self.run_began = began

    def point(self, record: ProgressRecord, at: datetime) -> Point:
        """The next batch's point, at the time that counts for it: the record's, unless a clock went back."""
        progress = record.progress
        if record.run_id != self._run:
            self._run, self.run_began = record.run_id, record.batch
        values = _durations(_table(progress, "durationMs"))
        _put(values, "input_rows", _number(progress, "numInputRows"))
        operators = self._operators(progress, record.batch, values)
        _checkpoint(values, bool(operators))
        watermark = time_or_none(_table(progress, "eventTime").get("watermark"))
        if watermark is not None and watermark <= _NO_WATERMARK:
            watermark = None
        if watermark is not None:
            values["watermark_lag_s"] = (at - watermark).total_seconds()
        _put(values, "source_lag_rows", source_lag_rows(progress.get("sources")))
        self._gap(values, record.batch, time_or_none(progress.get("timestamp")))
        return Point(at, record.batch, record.run_id, record.epoch, values, operators, watermark)

    def _operators(
        self, progress: Mapping[str, Any], batch: int, values: dict[str, float]
    ) -> dict[int, dict[str, float]]:
        listed = progress.get("stateOperators")
        reported = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        operators = {place: self._operator(one, batch) for place, one in enumerate(reported)}
        values |= over_all(operators, (*_SUMMED, "state_bytes", "state_commit_s"))
        if len(operators) == 1:
            values |= {name: value for name, value in operators[0].items() if name in _CALLS}
        else:
            customs = [_table(one, "customMetrics") for one in reported]
            for name, prefix in _CALLS.items():
                _put(values, name, _per_call(customs, prefix))
        return operators

    def _operator(self, reported: Mapping[str, Any], batch: int) -> dict[str, float]:
        custom = _table(reported, "customMetrics")
        found: dict[str, float] = {}
        for name, field in _SUMMED.items():
            _put(found, name, _number(reported, field))
        for size in ("rocksdbSstFileSize", "stateOnCurrentVersionSizeBytes"):
            _put(found, "state_bytes", _number(custom, size))
        if "state_bytes" not in found and "state_memory_bytes" in found:
            found["state_bytes"] = found["state_memory_bytes"]
        tasks = _tasks(reported)
        commit_ms = _number(reported, "commitTimeMs")
        if tasks and commit_ms is not None:
            found["state_commit_s"] = commit_ms / tasks / 1000
        for name, prefix in _CALLS.items():
            _put(found, name, _per_call([custom], prefix))
        _put(found, "snapshot_age_batches", self._snapshot_age(custom, batch))
        return found

    def _snapshot_age(self, custom: Mapping[str, Any], batch: int) -> float | None:
        """Changes since the oldest newest snapshot.

        Of a store that has uploaded nothing since it was loaded, as after a restart, -1 is reported: its
        snapshot is at least as old as this run.
        """
        names = [name for name in custom if name.startswith(_LAST_UPLOADED)]
        versions = [version for name in names if (version := _number(custom, name)) is not None]
        if not versions:
            return None
        oldest = min(version if version >= 0 else self.run_began for version in versions)
        return batch + 1 - oldest

    def _gap(self, values: dict[str, float], batch: int, begin: datetime | None) -> None:
        if begin is not None and self._end is not None and self._batch == batch - 1:
            gap = begin - self._end
            if gap >= -_CLOCK_SLACK:
                values["gap_s"] = max(0.0, gap.total_seconds())
        took_s = values.get("batch_s")
        self._batch = batch
        self._end = None if begin is None or took_s is None else _later(begin, took_s)


def _later(begin: datetime, seconds: float) -> datetime | None:
    try:
        return begin + timedelta(seconds=seconds)
    except OverflowError:  # Spark's clock was far off, or somebody wrote that number
        return None


def source_lag_rows(sources: Any) -> float | None:
    """Rows that wait in sources whose offsets are row numbers by topic and partition, as Kafka's are.

    Returns:
        None where no source tells: other sources count files, seconds or commits.
    """
    lags = (
        [lag for source in sources if (lag := _lag(source)) is not None] if isinstance(sources, list) else []
    )
    return float(sum(lags)) if lags else None


def _lag(source: Any) -> int | None:
    if not isinstance(source, dict):
        return None
    latest, end = source.get("latestOffset"), source.get("endOffset")
    if not isinstance(latest, dict) or not isinstance(end, dict) or not latest:
        return None
    lag = 0
    for topic, partitions in latest.items():
        reached = end.get(topic)
        if not isinstance(partitions, dict) or not isinstance(reached, dict):
            return None
        for partition, offset in partitions.items():
            read = reached.get(partition, 0)
            if not _is_whole(offset) or not _is_whole(read):
                return None
            lag += max(0, offset - read)
    return lag


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _durations(durations: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, field in _DURATIONS.items():
        milliseconds = _number(durations, field)
        if milliseconds is not None:
            found[name] = milliseconds / 1000
    return found


def _checkpoint(values: dict[str, float], stateful: bool) -> None:
    parts = ("wal_s", "commit_s", "state_commit_s") if stateful else ("wal_s", "commit_s")
    if all(part in values for part in parts):
        values["checkpoint_s"] = sum(values[part] for part in parts)


def _tasks(reported: Mapping[str, Any]) -> float | None:
    """How many tasks commit the state: an operator without a key runs in one, whatever is configured."""
    numbers = (_number(reported, field) for field in ("numShufflePartitions", "numStateStoreInstances"))
    return min((number for number in numbers if number is not None and number > 0), default=None)


def _per_call(customs: Iterable[Mapping[str, Any]], prefix: str) -> float | None:
    took_ms = calls = 0.0
    for custom in customs:
        latency_ms, count = _number(custom, f"{prefix}Latency"), _number(custom, f"{prefix}Count")
        if latency_ms is not None and count is not None:
            took_ms, calls = took_ms + latency_ms, calls + count
    return took_ms / calls if calls > 0 else None


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _number(data: Mapping[str, Any], name: str) -> float | None:
    value = data.get(name)
    if type(value) is int:
        return value if -_MOST < value < _MOST else None
    return value if type(value) is float and math.isfinite(value) else None


def _put(values: dict[str, float], name: str, value: float | None) -> None:
    if value is not None:
        values[name] = value
