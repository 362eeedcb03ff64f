"""What it takes to judge a very long history, and to judge it again, in a separate process.

    python -m bench.histories RECORDS

A query with a batch a second and one stateful operator; its files are made up as they are read, so nothing
but hours is written. One line of JSON comes out: seconds, processor seconds, memory in MB.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from bench.memory import peak_mb
from streambank.core.units import to_json_time
from streambank.declaration.objectives import DAY_S, HOUR_S
from streambank.declaration.sla import Declared, SlaPolicy
from streambank.sla.history.history import Records
from streambank.sla.history.hour_files import HourFiles
from streambank.sla.history.hours import Windows, hourly_history
from streambank.sla.judge.judge import judge
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import FileInfo

LINES = 2_700
"""Batches of one file: 4 MB."""
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_STATE_BYTES, _LEAK_BYTES = 2_000_000_000, 40
_OPERATOR = (
    '"stateOperators":[{"operatorName":"stateStoreSave","numRowsTotal":%d,"numRowsUpdated":812,'
    '"allUpdatesTimeMs":41,"numRowsRemoved":790,"allRemovalsTimeMs":17,"commitTimeMs":630,"memoryUsedBytes":'
    '8812345,"numRowsDroppedByWatermark":0,"numShufflePartitions":8,"numStateStoreInstances":8,'
    '"customMetrics":{"SnapshotLastUploaded.partition_0_default":%d,"SnapshotLastUploaded.partition_3_default"'
    ':%d,"rocksdbSstFileSize":%d,"rocksdbGetLatency":120,"rocksdbGetCount":41000,"rocksdbPutLatency":90,'
    '"rocksdbPutCount":39000,"rocksdbCommitFlushLatency":12,"rocksdbCommitCheckpointLatency":30,'
    '"rocksdbChangeLogWriterCommitLatencyMs":22,"rocksdbFilesCopied":2,"rocksdbBytesCopied":123456}}]'
)
_LINE = (
    '{"at":"%s","epoch":1,"query":"main","run_id":"d9f9fec6-aaaa-bbbb-cccc-0123456789ab","batch":%d,"progress"'
    ':{"id":"bec09ad5-aaaa-bbbb-cccc-0123456789ab","runId":"d9f9fec6-aaaa-bbbb-cccc-0123456789ab",'
    '"name":"main","timestamp":"%s","batchId":%d,"batchDuration":640,"numInputRows":1000,'
    '"inputRowsPerSecond":1000.0,"processedRowsPerSecond":1562.5,"durationMs":{"addBatch":480,"commitOffsets"'
    ':25,"getBatch":2,"latestOffset":12,"queryPlanning":60,"triggerExecution":640,"walCommit":30},"eventTime"'
    ':{"watermark":"%s"},' + _OPERATOR + ',"sources":[{"description":"KafkaV2[Subscribe[orders]]",'
    '"startOffset":{"orders":{"0":%d}},"endOffset":{"orders":{"0":%d}},"latestOffset":{"orders":{"0":%d}},'
    '"numInputRows":1000}],"sink":{"description":"noop"}}}\n'
)


class MadeUpFiles(MemoryStore):
    """Files of progress records that are not there until they are read.

    Args:
        records: How many there are.
    """

    def __init__(self, records: int) -> None:
        super().__init__()
        self._records = records

    def names(self, prefix: str = "") -> Sequence[str]:
        """See `Store.names`."""
        return [f"{number + 1:010d}.jsonl" for number in range(-(-self._records // LINES))]

    def stat(self, key: str) -> FileInfo:
        """See `Store.stat`."""
        return FileInfo(key, len(self.read(key)), 0, key)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> bytes:
        """See `Store.read`."""
        first = (int(key.rpartition("/")[2].partition(".")[0]) - 1) * LINES
        lines = LINES if length is None or offset else 1  # a beginning is a part of the first line
        last = min(first + lines, self._records)
        data = "".join(_line(batch) for batch in range(first, last)).encode()
        return data[offset:] if length is None else data[offset : offset + length]

    @contextmanager
    def open(self, key: str) -> Iterator[BinaryIO]:
        """See `Store.open`."""
        yield BytesIO(self.read(key))


def _line(batch: int) -> str:
    return made_up_line(batch, _BEGIN + timedelta(seconds=batch))


def made_up_line(batch: int, end: datetime) -> str:
    """The record of a batch that ended at a time."""
    begin = to_json_time(end - timedelta(milliseconds=640))
    watermark = to_json_time(end - timedelta(minutes=2))
    state_bytes = _STATE_BYTES + _LEAK_BYTES * batch + batch % 3571
    state = (100_000 + batch % 977, max(0, batch - 9), max(0, batch - 12), state_bytes)
    read = batch * 1000
    offsets = (read, read + 1000, read + 1400)
    return _LINE % (to_json_time(end), batch, begin, batch, watermark, *state, *offsets)


def main(count: int) -> dict[str, Any]:
    """Judge a history without anything kept, and with its hours kept."""
    store = MadeUpFiles(count)
    records = Records(store, [f"progress/main/{name}" for name in store.names()])
    now = _BEGIN + timedelta(seconds=count)
    window_s = count + 2 * DAY_S
    policy = SlaPolicy({"growth": Declared(window_s=window_s), "time_to_limit": Declared(window_s=window_s)})
    answer: dict[str, Any] = {"records": count, "line_bytes": len(_line(count // 2)), "start_mb": peak_mb()}
    answer["make_s"] = _made_in(min(count, 20 * LINES)) * count / min(count, 20 * LINES)
    with TemporaryDirectory() as folder:
        files = HourFiles(LocalStore(folder))
        told = []
        for name in ("first", "again"):
            began, used = time.perf_counter(), time.process_time()
            history = hourly_history(records, Windows(now, HOUR_S, window_s), files)
            verdicts = judge("bench", history, policy, now)
            answer[f"{name}_s"] = time.perf_counter() - began
            answer[f"{name}_cpu_s"] = time.process_time() - used
            answer[f"{name}_mb"] = peak_mb()
            told.append([verdict.to_dict() for verdict in verdicts])
        answer["agree"] = told[0] == told[1]
        growth = next(one for one in told[1] if one["objective"] == "growth")
        answer["growth"] = growth["why"]
        answer["hour_bytes"] = sum(info.size_bytes for info in LocalStore(folder).list())
    return answer


def _made_in(count: int) -> float:
    """Processor seconds that the making up itself takes."""
    used = time.process_time()
    for batch in range(count):
        _line(batch)
    return time.process_time() - used


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
