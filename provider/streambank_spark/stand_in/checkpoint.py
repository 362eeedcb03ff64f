"""A checkpoint as a running query writes it, without Spark: HDFS-backed state, a file source, purging."""

from __future__ import annotations

import json
import random
import uuid

from streambank.core.json_text import loads
from streambank.storage import open_store
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

    Attributes:
        inputs: Where its source reads a file for each batch, as a URI.
        watermark_ms: Up to where event time comes by the next batch, in ms since 1970; None for half a second
            after the number of the batch in seconds.
        reached_ms: Up to where it has come, and it never goes back; None where nobody has said so.
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
    ) -> None:
        self.store = store
        self.retain = retain
        self.snapshot_every = snapshot_every
        self.state_bytes = state_bytes
        self.query_id = query_id or str(uuid.uuid4())
        self.inputs = "file:///in"
        self.watermark_ms: int | None = None
        self.reached_ms: int | None = None
        self._random = random.Random(seed)
        self.next_batch = 0

    @property
    def last(self) -> int:
        """The newest batch that is committed; -1 before the first."""
        return self.next_batch - 1

    def run(self, batches: int) -> LiveCheckpoint:
        """Plan and commit some batches."""
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
        self.log_input(batch)
        before = batch * 1000 if self.reached_ms is None else self.reached_ms
        head = {"batchWatermarkMs": before, "batchTimestampMs": batch, "conf": CONF}
        lines = ["v1", json.dumps(head), json.dumps({"logOffset": batch})]
        self.store.write(f"offsets/{batch}", "\n".join(lines).encode())

    def log_input(self, batch: int) -> None:
        """Write what the source has read for a batch: one file."""
        entry = {"path": f"{self.inputs}/{batch}.json", "timestamp": batch, "batchId": batch}
        self.store.write(f"sources/0/{batch}", f"v1\n{json.dumps(entry)}".encode())

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
        batch, told = self.next_batch, self.watermark_ms
        after = max(batch * 1000 + 500 if told is None else told, self.reached_ms or 0)
        self.store.write(f"commits/{batch}", f'v1\n{{"nextBatchWatermarkMs":{after}}}'.encode())
        if told is not None or self.reached_ms is not None:
            self.reached_ms = after
        self.next_batch += 1
        if self.retain is not None:
            self.purge(self.retain)

    def purge(self, retain: int) -> None:
        """Delete what is not needed for the last `retain` batches, as Spark's maintenance does."""
        oldest = self.last - retain + 1
        for log in ("offsets", "commits"):
            for name in self.store.names(log):
                if name.isdigit() and int(name) < oldest - 1:  # Spark's own have checksums beside them
                    self.store.delete(f"{log}/{name}")
        for partition in range(2):
            folder = f"state/0/{partition}"
            names = self.store.names(folder)
            snapshots = [int(n.partition(".")[0]) for n in names if n.endswith(".snapshot")]
            base = max((version for version in snapshots if version <= oldest + 1), default=0)
            for name in names:
                version = name.partition(".")[0]
                if version.isdigit() and int(version) < base:
                    self.store.delete(f"{folder}/{name}")


def go_on(location: str) -> LiveCheckpoint:
    """The checkpoint at a location, as it goes on after its last committed batch."""
    store = open_store(location)
    checkpoint = LiveCheckpoint(store, retain=20)
    if store.exists("metadata"):
        checkpoint.query_id = loads(store.read("metadata"))["id"]
        commits = [int(each) for each in store.names("commits") if each.isdigit()]
        checkpoint.next_batch = max(commits, default=-1) + 1
        if checkpoint.last >= 0:
            said = loads(store.read(f"commits/{checkpoint.last}").partition(b"\n")[2])
            checkpoint.reached_ms = said.get("nextBatchWatermarkMs")
    return checkpoint
