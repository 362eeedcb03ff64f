"""A checkpoint as a running query writes it, without Spark; and what a kill leaves in one."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any

from streambank.storage.store import Store
from streambank_spark.stand_in import checkpoint
from streambank_spark.stand_in.checkpoint import CONF

__all__ = ["CONF", "LiveCheckpoint", "add_debris", "oldest_log_entry"]


class LiveCheckpoint(checkpoint.LiveCheckpoint):
    """One whose source may compact its log.

    Args:
        compact_every: Spark's `fileSource.log.compactInterval`; None never compacts the source's log.
    """

    def __init__(self, store: Store, *, compact_every: int | None = None, **how: Any) -> None:
        super().__init__(store, **how)
        self.compact_every = compact_every

    def run(self, batches: int) -> LiveCheckpoint:
        super().run(batches)
        return self

    def log_input(self, batch: int) -> None:
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
