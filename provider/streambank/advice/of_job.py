"""The state of a declared job as its newest progress record shows it: what advice begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streambank.control.progress import ProgressRecord
from streambank.core.shape import JsonObject
from streambank.core.units import to_json_time
from streambank.declaration.declaration import Job
from streambank.sla.history.history import Records

WRITE_BYTES = 15
"""Of each write beside key and value: head of the batch, kind, and two lengths (RocksDB: WriteBatch)."""


@dataclass(frozen=True, slots=True)
class StateNow(JsonObject):
    """The state of a query after its newest batch.

    Attributes:
        at: When it was recorded, as JSON has it.
        provider: `hdfs` or `rocksdb`.
        rows: Rows of all stateful operators.
        row_bytes: Bytes of a row; None where the batch wrote none.
        update_share: The part of the rows that the batch changed; None if it changed none.
        memory_bytes: What Spark reports of the state's memory.
        stores: Stores of all operators; None where Spark does not say.
    """

    batch: int
    at: str
    provider: str
    rows: int
    row_bytes: int | None
    update_share: float | None
    batch_ms: float | None
    memory_bytes: int | None
    stores: int | None
    partitions: int | None


def state_of_job(job: Job, query: str | None) -> StateNow | None:
    """What the newest progress record of a query, None for the only one, says of its state; None without any.

    Raises:
        InputError: The job has several queries, or none of this name (code `which-query`).
        StorageError, RefusedError: Its records cannot be read.
    """
    record = _newest(job, query)
    operators = _operators(record.progress) if record is not None else []
    if record is None or not operators:
        return None
    rows, updated = _sum(operators, "numRowsTotal"), _sum(operators, "numRowsUpdated")
    customs = [one["customMetrics"] for one in operators if isinstance(one.get("customMetrics"), dict)]
    puts, written = _sum(customs, "rocksdbPutCount"), _sum(customs, "rocksdbTotalBytesWritten")
    partitions = max((_whole(one, "numShufflePartitions") for one in operators), default=0)
    instances = _sum(operators, "numStateStoreInstances")
    durations = record.progress.get("durationMs")
    batch_ms = _whole(durations, "triggerExecution") if isinstance(durations, dict) else 0
    return StateNow(
        record.batch,
        to_json_time(record.at),
        "rocksdb" if any("rocksdbGetCount" in one for one in customs) else "hdfs",
        rows,
        max(1, written // puts - WRITE_BYTES) if puts and written else None,
        min(1.0, updated / rows) if rows and updated else None,
        batch_ms or None,
        _sum(operators, "memoryUsedBytes") or None,
        -(-instances // partitions) if instances and partitions else None,
        partitions or None,
    )


def is_stateless(job: Job, query: str | None) -> bool:
    """Whether the newest progress record of a query, None for the only one, shows that it keeps no state.

    Raises:
        InputError: The job has several queries, or none of this name (code `which-query`).
        StorageError, RefusedError: Its records cannot be read.
    """
    record = _newest(job, query)
    return record is not None and not _operators(record.progress)


def _newest(job: Job, query: str | None) -> ProgressRecord | None:
    return Records.of_query(job.records().store, job.only_query(query)).newest()


def _operators(progress: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = progress.get("stateOperators")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _whole(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _sum(each: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(_whole(one, name) for one in each)
