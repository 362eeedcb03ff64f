"""Progress records: what Spark says about each batch, kept as JSON lines (docs/formats/progress.md).

`progress/<query>/<10 digits>.jsonl`, one line a batch:
`{"at", "epoch", "query", "run_id", "batch", "progress": {Spark's own JSON}}`, and `hot_keys` where they are
sampled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.core.errors import FormatError, NotFoundError
from streambank.core.json_text import loads, memory_bytes
from streambank.core.limits import DEFAULT_PROGRESS_BYTES, DEFAULT_PROGRESS_FILES
from streambank.core.names import MAIN
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.storage.segments import SegmentWriter, segment_key, segment_numbers
from streambank.storage.store import Store, read_record

_TAIL_BYTES = 1 << 16
_HEAD_BYTES = 1 << 10
MOST_BYTES = 1 << 24
"""Of one file that are read, which is as large as the runner lets one grow."""
_MOST_MEMORY_BYTES = 240 << 20
"""Of the records of one file: some nine times the bytes of real ones."""
_HEAD = re.compile(
    rb'\{"at":"([^"]{1,40})","epoch":([0-9]{1,18}),"query":"[^"]*","run_id":"([^"\\]*)","batch":([0-9]{1,18}),'
)


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """One batch.

    Attributes:
        at: When the runner wrote it down.
        hot_keys: The keys with the most rows by then (sla/skew/traffic.py); None where they are not sampled.
    """

    at: datetime
    epoch: int
    query: str
    run_id: str
    batch: int
    progress: Mapping[str, Any]
    hot_keys: Mapping[str, Any] | None = None

    def is_of(self, epoch: int | None) -> bool:
        """Whether nothing has held the job's lease since this driver: no later start, and no restore.

        Args:
            epoch: The newest epoch of the lease; None where there is none.
        """
        return epoch is None or self.epoch >= epoch

    def traffic(self, epoch: int | None) -> dict[str, Any] | None:
        """The measurement of hot keys with its time.

        Returns:
            `at`, `batch`, `current` (false where another operator may have its number by now, see `is_of`),
            and what `hot_keys` has; None where nothing is measured.
        """
        if self.hot_keys is None:
            return None
        is_current = self.is_of(epoch)
        return {"at": to_json_time(self.at), "batch": self.batch, "current": is_current, **self.hot_keys}


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of records.

    Attributes:
        records: Its records, oldest first.
        damaged: Whole lines that cannot be read.
        torn: Whether it ends in half a line: what a driver that was killed, or is just writing, leaves.
    """

    records: Sequence[ProgressRecord]
    damaged: int = 0
    torn: bool = False


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """What the first record of a file says. A file is written by one driver, so its epoch is that of all."""

    at: datetime
    epoch: int
    batch: int
    run_id: str = ""


class Succession:
    """Which records of a query are new, and how many are missing between them.

    Attributes:
        duplicates: Records dropped since that batch of that run was seen before.
        lost: Batches of which no record is there, between records that are: within a run, and between the end
            of one and the beginning of the next. Batches before the first record kept are not lost but
            expired.
    """

    def __init__(self) -> None:
        self.duplicates = self.lost = 0
        self._last_of_run: dict[str, int] = {}
        self._before: int | None = None

    def takes(self, record: ProgressRecord) -> bool:
        """Whether the next record is new; counts what is missing before it."""
        last = self._last_of_run.get(record.run_id)
        if last is not None and record.batch <= last:
            self.duplicates += 1
            return False
        known = self._before if last is None else last
        if known is not None and record.batch > known + 1:
            self.lost += record.batch - known - 1
        self._last_of_run[record.run_id] = self._before = record.batch
        return True


class ProgressWriter:
    """Writes the progress of one query. Batches of a run that were written already are dropped.

    Args:
        max_age_s: How long a file is kept after its last record; None for as long as there is room.
    """

    def __init__(
        self,
        store: Store,
        query: str | None,
        *,
        epoch: int,
        max_bytes: int = DEFAULT_PROGRESS_BYTES,
        max_files: int = DEFAULT_PROGRESS_FILES,
        max_age_s: float | None = None,
    ) -> None:
        self.query = query or MAIN
        self.epoch = epoch
        self.last_batch: int | None = None
        self._written: dict[str, int] = {}
        self._segments = SegmentWriter(
            store, f"progress/{self.query}", max_bytes=max_bytes, max_files=max_files, max_age_s=max_age_s
        )

    def add(self, progress: str | Mapping[str, Any], hot_keys: Mapping[str, Any] | None = None) -> bool:
        """Take Spark's progress of one batch (`StreamingQueryProgress.json()`); `flush` writes it.

        Args:
            hot_keys: The keys with the most rows by then; None where they are not sampled.

        Returns:
            False where this run's batch was taken before, or where no batch ran: when idle,
            Spark reports the number of the *next* batch every ten seconds, which has yet to come.

        Raises:
            FormatError: It carries no `runId` or `batchId` (code `bad-progress`).
        """
        try:
            data = loads(progress) if isinstance(progress, str) else progress
            run_id, batch = str(data["runId"]), int(data["batchId"])
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"Spark's progress of query {self.query} cannot be read: {error!r}.",
                code="bad-progress",
                hint="This version of Spark may write it differently: report it.",
            ) from error
        if batch <= self._written.get(run_id, -1) or _is_idle(data):
            return False
        self._written[run_id] = self.last_batch = batch
        line = {
            "at": to_json_time(utc_now()),
            "epoch": self.epoch,
            "query": self.query,
            "run_id": run_id,
            "batch": batch,
            "progress": data,
        } | ({} if hot_keys is None else {"hot_keys": hot_keys})
        self._segments.add(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode())
        return True

    def flush(self) -> None:
        """Write what was taken.

        Raises:
            StorageError: It could not be written; it stays and goes with the next flush.
        """
        self._segments.flush()

    def prune(self) -> None:
        """Delete files that are older than they are kept; also done whenever a file is begun."""
        self._segments.prune()


def progress_keys(store: Store, query: str | None = None) -> list[str]:
    """The files of a query's records, oldest first."""
    prefix = f"progress/{query or MAIN}"
    return [segment_key(prefix, number) for number in segment_numbers(store, prefix)]


def read_segment(store: Store, key: str) -> Segment | None:
    """One file, whole; None where it was rolled away meanwhile."""
    try:
        lines = read_record(store, key, MOST_BYTES).split(b"\n")
    except NotFoundError:
        return None
    torn = bool(lines.pop())
    records: list[ProgressRecord] = []
    memory = 0
    for line in lines:
        memory += memory_bytes(line.decode("utf-8", "replace"))
        record = _record(line) if memory < _MOST_MEMORY_BYTES else None
        if record is not None:
            records.append(record)
    return Segment(records, len(lines) - len(records), torn)


def segment_head(store: Store, key: str) -> SegmentHead | None:
    """How a file begins, of which only the first line's beginning is read where that is as it should be.

    Returns:
        None where no record in it can be read, or it was rolled away meanwhile.
    """
    try:
        found = _HEAD.match(store.read(key, 0, _HEAD_BYTES))
    except NotFoundError:
        return None
    if found is not None:
        try:
            at = from_json_time(found[1].decode())
            return SegmentHead(at, int(found[2]), int(found[4]), found[3].decode())
        except ValueError:
            pass  # that line is damaged: another one may not be
    segment = read_segment(store, key)
    if segment is None or not segment.records:
        return None
    first = segment.records[0]
    return SegmentHead(first.at, first.epoch, first.batch, first.run_id)


def last_progress(store: Store, query: str | None = None) -> ProgressRecord | None:
    """The newest record of a query, read from the end of its files; None where there is none."""
    for key in reversed(progress_keys(store, query)):
        record = last_of_segment(store, key)
        if record is not None:
            return record
    return None


def last_of_segment(store: Store, key: str) -> ProgressRecord | None:
    """The newest record of one file, read from its end; None where it has none, or was rolled away."""
    try:
        size_bytes = store.stat(key).size_bytes
        tail_bytes = _TAIL_BYTES
        while True:
            begin = max(0, size_bytes - tail_bytes)
            lines = store.read(key, begin).split(b"\n")[:-1]
            for line in reversed(lines if begin == 0 else lines[1:]):
                record = _record(line)
                if record is not None:
                    return record
            if begin == 0 or tail_bytes >= MOST_BYTES:
                return None
            tail_bytes *= 4
    except NotFoundError:  # rolled away while we read
        return None


def newest_batch_of(store: Store, query: str | None, query_id: str) -> int | None:
    """The newest batch that the records name of a query id, also of before a restore; None for none.

    Batches ascend within a file, since one driver writes it; after a restore they begin lower.

    Args:
        query_id: Spark's id of the query: one that began again counts from 0.
    """
    newest = [last_of_segment(store, key) for key in progress_keys(store, query)]
    return max(
        (record.batch for record in newest if record and record.progress.get("id") == query_id), default=None
    )


def progress_of_batch(
    store: Store, query: str | None, batch: int, *, since: datetime, until: datetime
) -> ProgressRecord | None:
    """The newest record of one run of a batch, looked for from the end; None where it was not kept.

    Args:
        since: Leave out what was written down before: a batch of that number from before a restore.
        until: Leave out what was written down later: after a restore the same number may have run again.
    """
    sought = f'"batch":{batch},'.encode()
    for key in reversed(progress_keys(store, query)):
        try:
            lines = read_record(store, key, MOST_BYTES).split(b"\n")[:-1]
        except NotFoundError:  # rolled away while we read
            continue
        for line in reversed(lines):
            record = _record(line) if sought in line else None
            if record is not None and record.batch == batch and since <= record.at <= until:
                return record
    return None


def _is_idle(progress: Mapping[str, Any]) -> bool:
    """Whether this is the progress of a trigger that ran no batch (seen with Spark 4.3.0)."""
    durations = progress.get("durationMs")
    return isinstance(durations, dict) and "addBatch" not in durations


def _record(line: bytes) -> ProgressRecord | None:
    """One line; None where it cannot be read."""
    try:
        data = loads(line)
        return ProgressRecord(
            from_json_time(str(data["at"])),
            int(data["epoch"]),
            str(data["query"]),
            str(data["run_id"]),
            int(data["batch"]),
            dict(data["progress"]),
            None if data.get("hot_keys") is None else dict(data["hot_keys"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
