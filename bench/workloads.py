"""Checkpoints to measure with: the two shapes of Spark's state stores, filled with random bytes.

The names, the log entries and what a RocksDB snapshot says of its files are Spark's; the contents of the
state files are not, since neither a take nor a copy reads them as anything but bytes.
"""

from __future__ import annotations

import io
import json
import os
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS_BACKED = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
MB = 1_000_000


class Workload(Protocol):
    """A checkpoint that can be built, and go on by one batch."""

    @property
    def name(self) -> str:
        """What the tables call it."""

    @property
    def says(self) -> str:
        """What it is, in a sentence."""

    def build(self, root: Path) -> None:
        """Write the checkpoint."""

    def add_batch(self, root: Path) -> list[Path]:
        """Commit one more batch; gives the files that are new."""


@dataclass(frozen=True, slots=True)
class LargeFiles:
    """RocksDB: files of 1 MB, of which one more batch replaces 2 %.

    Attributes:
        partitions: State partitions.
        files: Files of each partition.
        file_bytes: Size of each.
    """

    partitions: int = 20
    files: int = 100
    file_bytes: int = MB

    @property
    def name(self) -> str:
        """See `Workload.name`."""
        return "large files"

    @property
    def says(self) -> str:
        """See `Workload.says`."""
        count = self.partitions * self.files
        return (
            f"{count * self.file_bytes / MB:,.0f} MB in {count:,} files of {self.file_bytes / MB:g} MB, in "
            "the shape of RocksDB's state; a savepoint needs all of it. One more batch replaces 2 % of it."
        )

    @property
    def replaced(self) -> int:
        """How many files of a partition one batch replaces."""
        return max(1, self.files * 2 // 100)

    def build(self, root: Path) -> None:
        """See `Workload.build`."""
        _write(root / "metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        _write(root / "state/0/_metadata/metadata", _operator(self.partitions))
        for partition in range(self.partitions):
            names = [_sst(partition, number) for number in range(self.files)]
            for name in names:
                _write(_folder(root, partition) / "SSTs" / name, os.urandom(self.file_bytes))
            _write(_folder(root, partition) / "1.zip", self._snapshot(names))
        _write_logs(root, ROCKSDB, self.partitions, 0)

    def add_batch(self, root: Path) -> list[Path]:
        """See `Workload.add_batch`."""
        added = []
        for partition in range(self.partitions):
            numbers = range(self.replaced, self.files + self.replaced)
            names = [_sst(partition, number) for number in numbers]
            for name in names[self.files - self.replaced :]:
                added.append(_write(_folder(root, partition) / "SSTs" / name, os.urandom(self.file_bytes)))
            added.append(_write(_folder(root, partition) / "2.zip", self._snapshot(names)))
        return [*added, *_write_logs(root, ROCKSDB, self.partitions, 1)]

    def _snapshot(self, names: list[str]) -> bytes:
        files = [
            {"localFileName": name, "dfsSstFileName": name, "sizeBytes": self.file_bytes} for name in names
        ]
        metadata = json.dumps({"sstFiles": files, "logFiles": [], "numKeys": 1000 * len(files)})
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("metadata", f"v1\n{metadata}")
            archive.writestr("MANIFEST-000004", os.urandom(500))
        return data.getvalue()


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """The HDFS-backed store: a small file for each batch and partition, most of which nobody needs any more.

    Attributes:
        partitions: State partitions; each has 100 files.
        file_bytes: Size of each.
    """

    partitions: int = 1000
    file_bytes: int = 2000
    first: int = 5
    newest: int = 95

    @property
    def name(self) -> str:
        """See `Workload.name`."""
        return "many small files"

    @property
    def says(self) -> str:
        """See `Workload.says`."""
        return (
            f"{self.partitions * 100:,} files of {self.file_bytes / 1000:g} kB, in the shape of the "
            "HDFS-backed store: a delta for each batch, a snapshot every tenth. A savepoint needs 17 of "
            f"100; `cp -r` and the other tools copy all. One more batch adds {self.partitions:,} files."
        )

    def build(self, root: Path) -> None:
        """See `Workload.build`."""
        _write(root / "metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        _write(root / "state/0/_metadata/metadata", _operator(self.partitions))
        for partition in range(self.partitions):
            folder = _folder(root, partition)
            if partition == 0:
                _write(folder / "_metadata/schema", b"\x00\x02v3" + os.urandom(200))
            for version in range(self.first, self.newest + 1):
                _write(folder / f"{version}.delta", os.urandom(self.file_bytes))
                if version % 10 == 0:
                    _write(folder / f"{version}.snapshot", os.urandom(self.file_bytes))
        for batch in range(self.first - 1, self.newest):
            _write_logs(root, HDFS_BACKED, self.partitions, batch)

    def add_batch(self, root: Path) -> list[Path]:
        """See `Workload.add_batch`."""
        added = [
            _write(_folder(root, partition) / f"{self.newest + 1}.delta", os.urandom(self.file_bytes))
            for partition in range(self.partitions)
        ]
        return [*added, *_write_logs(root, HDFS_BACKED, self.partitions, self.newest)]


def _sst(partition: int, number: int) -> str:
    return f"{number:06d}-{uuid.UUID(int=partition << 64 | number)}.sst"


def _folder(root: Path, partition: int) -> Path:
    return root / "state" / "0" / str(partition)


def _operator(partitions: int) -> bytes:
    store = {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": partitions}
    operator = {
        "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [store],
    }
    return b"v1\n" + json.dumps(operator, separators=(",", ":")).encode()


def _write_logs(root: Path, provider: str, partitions: int, batch: int) -> list[Path]:
    conf = {
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.sql.shuffle.partitions": str(partitions),
    }
    header = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + batch, "conf": conf}
    lines = ("v1", json.dumps(header), json.dumps({"offset": batch, "timestamp": batch}))  # rate-micro-batch
    return [
        _write(root / f"offsets/{batch}", "\n".join(lines).encode()),
        _write(root / f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}'),
    ]


def _write(path: Path, data: bytes) -> Path:
    try:
        path.write_bytes(data)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return path
