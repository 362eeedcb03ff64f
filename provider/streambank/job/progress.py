"""Progress records: what Spark says about each batch, kept as JSON lines (docs/formats/progress.md).

`progress/<query>/<10 digits>.jsonl`, one line a batch:
`{"at", "epoch", "query", "run_id", "batch", "progress": {Spark's own JSON}}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streambank.errors import FormatError, NotFoundError
from streambank.job.generations import MAIN
from streambank.job.launch import DEFAULT_PROGRESS_BYTES, DEFAULT_PROGRESS_FILES
from streambank.job.segments import SegmentWriter, segment_key, segment_numbers
from streambank.storage.base import Store
from streambank.times import from_json_time, to_json_time, utc_now

_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """One batch.

    Attributes:
        at: When the runner wrote it down.
        epoch: The lease's epoch of the driver.
        query: The query's name, or `main`.
        run_id: Spark's id of this run of the query.
        batch: The batch.
        progress: Spark's progress of it.
    """

    at: datetime
    epoch: int
    query: str
    run_id: str
    batch: int
    progress: Mapping[str, Any]


class ProgressWriter:
    """Writes the progress of one query. Batches of a run that were written already are dropped.

    Args:
        store: The job's control store.
        query: The query's name; None for the only one.
        epoch: The driver's epoch of the lease.
        max_bytes: Size of one file.
        max_files: How many files are kept.
    """

    def __init__(
        self,
        store: Store,
        query: str | None,
        *,
        epoch: int,
        max_bytes: int = DEFAULT_PROGRESS_BYTES,
        max_files: int = DEFAULT_PROGRESS_FILES,
    ) -> None:
        self.query = query or MAIN
        self.epoch = epoch
        self.last_batch: int | None = None
        self._written: dict[str, int] = {}
        self._segments = SegmentWriter(
            store, f"progress/{self.query}", max_bytes=max_bytes, max_files=max_files
        )

    def add(self, progress: str | Mapping[str, Any]) -> bool:
        """Take Spark's progress of one batch (`StreamingQueryProgress.json()`); `flush` writes it.

        Returns:
            False where this run's batch was taken before, or where no batch ran: when idle,
            Spark reports the number of the *next* batch every ten seconds, which has yet to come.

        Raises:
            FormatError: It carries no `runId` or `batchId` (code `bad-progress`).
        """
        try:
            data = json.loads(progress) if isinstance(progress, str) else progress
            run_id, batch = str(data["runId"]), int(data["batchId"])
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"Spark's progress of query {self.query} cannot be read: {error!r}.",
                code="bad-progress",
                hint="Another version of Spark may write it otherwise: report it.",
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
        }
        self._segments.add(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode())
        return True

    def flush(self) -> None:
        """Write what was taken.

        Raises:
            StorageError: It could not be written; it stays and goes with the next flush.
        """
        self._segments.flush()


class ProgressScan:
    """The records of one query, oldest first, each batch of a run once. Safe while a driver writes.

    Attributes:
        duplicates: Lines dropped since that batch of that run was seen before.
        lost: Batches of which no record is there, between records that are: within a run, and between the end
            of one and the beginning of the next. Batches before the first record kept are not lost but
            expired.
        damaged: Whole lines that cannot be read.
        torn: Files that end in half a line: what a driver that was killed, or is just writing, leaves.

    The counts are complete when the iteration is.
    """

    def __init__(self, store: Store, query: str | None = None) -> None:
        self._store = store
        self._prefix = f"progress/{query or MAIN}"
        self._reset()

    def _reset(self) -> None:
        self.duplicates = self.lost = self.damaged = self.torn = 0

    def __iter__(self) -> Iterator[ProgressRecord]:
        self._reset()
        last_of_run: dict[str, int] = {}
        before: int | None = None
        for record in self._lines():
            last = last_of_run.get(record.run_id)
            if last is not None and record.batch <= last:
                self.duplicates += 1
                continue
            known = before if last is None else last
            if known is not None and record.batch > known + 1:
                self.lost += record.batch - known - 1
            last_of_run[record.run_id] = before = record.batch
            yield record

    def _lines(self) -> Iterator[ProgressRecord]:
        for number in segment_numbers(self._store, self._prefix):
            try:
                data = self._store.read(segment_key(self._prefix, number))
            except NotFoundError:  # rolled away while we read
                continue
            lines = data.split(b"\n")
            if lines.pop():
                self.torn += 1
            for line in lines:
                record = _record(line)
                if record is None:
                    self.damaged += 1
                else:
                    yield record


def last_progress(store: Store, query: str | None = None) -> ProgressRecord | None:
    """The newest record of a query, read from the end of its files; None where there is none."""
    prefix = f"progress/{query or MAIN}"
    for number in reversed(segment_numbers(store, prefix)):
        key = segment_key(prefix, number)
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
                if begin == 0:
                    break
                tail_bytes *= 4
        except NotFoundError:  # rolled away while we read
            continue
    return None


def progress_of_batch(
    store: Store, query: str | None, batch: int, *, since: datetime, until: datetime
) -> ProgressRecord | None:
    """The newest record of one run of a batch, looked for from the end; None where it was not kept.

    Args:
        store: The job's control store.
        query: The query's name; None for the only one.
        batch: The batch.
        since: Leave out what was written down before: a batch of that number from before a restore.
        until: Leave out what was written down later: after a restore the same number may have run again.
    """
    prefix = f"progress/{query or MAIN}"
    sought = f'"batch":{batch},'.encode()
    for number in reversed(segment_numbers(store, prefix)):
        try:
            lines = store.read(segment_key(prefix, number)).split(b"\n")[:-1]
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
        data = json.loads(line)
        return ProgressRecord(
            from_json_time(str(data["at"])),
            int(data["epoch"]),
            str(data["query"]),
            str(data["run_id"]),
            int(data["batch"]),
            dict(data["progress"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
