"""A checkpoint as a running query writes it, without Spark: HDFS-backed state, a file source, purging."""

from __future__ import annotations

import json
import os
import random
import uuid

from streambank.storage.store import Store

CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.shuffle.partitions": "2",
}


class LiveCheckpoint:
    """Writes batches into a checkpoint in the order in which Spark does.

    Args:
        retain: How many batches of logs and state are kept; None keeps all.
        snapshot_every: Every so many versions a snapshot is written.
        state_bytes: Size of a delta; snapshots are four times as large.
        seed: What the bytes are made from; two timelines have different ones.
        compact_every: Spark's `fileSource.log.compactInterval`; None never compacts the source's log.

    Attributes:
        inputs: Where its source reads a file for each batch, as a URI.
    """

    def __init__(
        self,
        store: Store,
        *,
        retain: int | None = None,
        snapshot_every: int = 5,
        state_bytes: int = 200,
        query_id: str | None = None,
        seed: int = 0,
        compact_every: int | None = None,
    ) -> None:
        self.store = store
        self.retain = retain
        self.compact_every = compact_every
        self.snapshot_every = snapshot_every
        self.state_bytes = state_bytes
        self.query_id = query_id or str(uuid.uuid4())
        self.inputs = "file:///in"
        self._random = random.Random(seed)
        self.next_batch = 0

    @property
    def last(self) -> int:
        return self.next_batch - 1

    def run(self, batches: int) -> LiveCheckpoint:
        for _ in range(batches):
            self.plan()
            self.commit()
        return self

    def plan(self) -> None:
        """Plan the next batch: what is left of it when the driver is killed in the middle."""
        batch = self.next_batch
        if batch == 0 and not self.store.exists("metadata"):
            self.store.write("metadata", json.dumps({"id": self.query_id}).encode())
            operator = {
                "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
                "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}],
            }
            self.store.write("state/0/_metadata/metadata", f"v1\n{json.dumps(operator)}".encode())
        self._log_input(batch)
        head = {"batchWatermarkMs": batch * 1000, "batchTimestampMs": batch, "conf": CONF}
        lines = ["v1", json.dumps(head), json.dumps({"logOffset": batch})]
        self.store.write(f"offsets/{batch}", "\n".join(lines).encode())

    def _log_input(self, batch: int) -> None:
        compacts = self.compact_every is not None and (batch + 1) % self.compact_every == 0
        numbers = range(batch + 1) if compacts else [batch]
        entries = ({"path": f"{self.inputs}/{one}.json", "timestamp": one, "batchId": one} for one in numbers)
        name = f"{batch}.compact" if compacts else str(batch)
        self.store.write(f"sources/0/{name}", "\n".join(["v1", *map(json.dumps, entries)]).encode())
        if self.compact_every is not None and self.retain is not None and compacts:
            oldest = oldest_log_entry(batch, self.retain, self.compact_every)
            for old in self.store.names("sources/0"):
                if int(old.partition(".")[0]) < oldest:
                    self.store.delete(f"sources/0/{old}")

    def commit(self) -> None:
        """Write the state and the commit of the planned batch, and delete what is old."""
        self.write_state()
        self.write_commit()

    def write_state(self) -> None:
        """Write the state of the planned batch; its sink comes next."""
        version = self.next_batch + 1
        for partition in range(2):
            folder = f"state/0/{partition}"
            self.store.write(f"{folder}/{version}.delta", self._random.randbytes(self.state_bytes))
            if version % self.snapshot_every == 0:
                self.store.write(f"{folder}/{version}.snapshot", self._random.randbytes(4 * self.state_bytes))

    def write_commit(self) -> None:
        """Write the commit of the planned batch, and delete what is old."""
        batch = self.next_batch
        self.store.write(f"commits/{batch}", f'v1\n{{"nextBatchWatermarkMs":{batch * 1000 + 500}}}'.encode())
        self.next_batch += 1
        if self.retain is not None:
            self.purge(self.retain)

    def purge(self, retain: int) -> None:
        """Delete what is not needed for the last `retain` batches, as Spark's maintenance does."""
        oldest = self.last - retain + 1
        for name in self.store.names("offsets"):
            if int(name) < oldest - 1:
                self.store.delete(f"offsets/{name}")
        for name in self.store.names("commits"):
            if int(name) < oldest - 1:
                self.store.delete(f"commits/{name}")
        for partition in range(2):
            folder = f"state/0/{partition}"
            names = self.store.names(folder)
            snapshots = [int(n.partition(".")[0]) for n in names if n.endswith(".snapshot")]
            base = max((version for version in snapshots if version <= oldest + 1), default=0)
            for name in names:
                if int(name.partition(".")[0]) < base:
                    self.store.delete(f"{folder}/{name}")


def oldest_log_entry(batch: int, retain: int, compact_every: int) -> int:
    """The oldest entry that a log keeps which compacts itself, once its delay for cleaning is over.

    Spark keeps the compacted entry before the batches that are retained (4.3.0:
    CompactibleFileStreamLog.deleteExpiredLog).
    """
    first = batch + 1 - retain
    return first - first % compact_every - 1


def add_debris(store: Store, batch: int) -> None:
    """What a kill in the middle of a batch leaves: temporary and hidden files."""
    name = f".{batch + 2}.delta.{uuid.UUID(int=batch)}.TID7.tmp"
    store.write(f"state/0/0/{name}", b"half")
    store.write(f"offsets/.{batch}.{uuid.UUID(int=1)}.tmp", b"half")
    store.write(f"offsets/.{batch}.crc", os.urandom(12))
