"""Checkpoints to measure with: the layout of Spark's HDFS-backed state store, filled with random bytes.

The shape (names, log entries, versions) is Spark's; the contents of the state files are not, since neither a
take nor a copy reads them as anything but bytes.
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
SNAPSHOT_AT = 10  # the state version that is a snapshot; the versions after it are deltas


@dataclass(frozen=True, slots=True)
class Workload:
    """How large a checkpoint is.

    Attributes:
        name: What the tables call it.
        partitions: State partitions.
        snapshot_bytes: Size of each partition's snapshot.
        delta_bytes: Size of each delta.
        deltas: Deltas after the snapshot at the beginning.
    """

    name: str
    partitions: int
    snapshot_bytes: int
    delta_bytes: int
    deltas: int

    @property
    def first_batch(self) -> int:
        """The newest batch at the beginning."""
        return SNAPSHOT_AT + self.deltas - 1

    def scaled(self, factor: float) -> Workload:
        """The same shape with smaller files."""
        return Workload(
            self.name,
            self.partitions,
            max(1, int(self.snapshot_bytes * factor)),
            max(1, int(self.delta_bytes * factor)),
            self.deltas,
        )


# One more delta a partition is 2 % of what there is, in both.
LARGE = Workload("large files", partitions=8, snapshot_bytes=96 << 20, delta_bytes=2 << 20, deltas=2)
SMALL = Workload("many small files", partitions=1000, snapshot_bytes=24 << 10, delta_bytes=600, deltas=9)


def build(root: Path, workload: Workload) -> None:
    """Write a checkpoint whose newest committed batch is `workload.first_batch`."""
    _write(root / "metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    _write(root / "state/0/_metadata/metadata", _operator(workload))
    for partition in range(workload.partitions):
        folder = root / "state" / "0" / str(partition)
        if partition == 0:
            _write(folder / "_metadata/schema", b"\x00\x02v3" + os.urandom(200))
        _write(folder / f"{SNAPSHOT_AT}.snapshot", os.urandom(workload.snapshot_bytes))
        for version in range(SNAPSHOT_AT, workload.first_batch + 2):
            _write(folder / f"{version}.delta", os.urandom(workload.delta_bytes))
    for batch in range(SNAPSHOT_AT - 1, workload.first_batch + 1):
        _write_logs(root, workload, batch)


def add_batch(root: Path, workload: Workload, batch: int) -> None:
    """Commit one more batch: a delta in every partition, and the log entries."""
    for partition in range(workload.partitions):
        path = root / "state" / "0" / str(partition) / f"{batch + 1}.delta"
        _write(path, os.urandom(workload.delta_bytes))
    _write_logs(root, workload, batch)


def _operator(workload: Workload) -> bytes:
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": workload.partitions}
    operator = {
        "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [store],
    }
    return b"v1\n" + json.dumps(operator, separators=(",", ":")).encode()


def _write_logs(root: Path, workload: Workload, batch: int) -> None:
    conf = {
        "spark.sql.streaming.stateStore.providerClass": PROVIDER,
        "spark.sql.shuffle.partitions": str(workload.partitions),
    }
    header = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + batch, "conf": conf}
    _write(root / f"offsets/{batch}", b"v1\n" + json.dumps(header).encode() + f"\n{batch}".encode())
    _write(root / f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
