"""A small checkpoint with all kinds of garbage, of which tests make many."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.reader import CheckpointReader
from streambank.compaction.compact import CompactionRequest
from streambank.compaction.quiet_check import HELD
from streambank.storage.local.store import LocalStore
from streambank.storage.memory import MemoryStore
from streambank.storage.store import Store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint

STOPPED = CompactionRequest(stopped=True, watch=HELD, by={"user": "tester"})
"""What the tests mostly want: everything, of a query that is held."""


def write_with_garbage(store: Store) -> LiveCheckpoint:
    """Some batches, one that was planned, an attempt at it, unfinished writes, a partition too many."""
    live = LiveCheckpoint(store, snapshot_every=2, query_id=str(uuid.UUID(int=1))).run(4)
    live.plan()
    for path in (
        "state/0/0/6.delta",
        f"state/0/0/.6.delta.{uuid.UUID(int=3)}.TID7.tmp",
        f"offsets/.4.{uuid.UUID(int=4)}.tmp",
        "commits/.9.crc",
        "state/0/2/4.delta",
    ):
        store.write(path, path.encode())
    return live


def copied(files: Mapping[str, bytes], to: Path | None = None) -> Store:
    """Those files below `ck`, and nothing else: in a folder, or in memory."""
    if to is not None:
        shutil.rmtree(to, ignore_errors=True)
    store: Store = MemoryStore() if to is None else LocalStore(to, fsync=False)
    for path, data in files.items():
        store.write(f"ck/{path}", data)
    return store


def closure(store: Store) -> tuple[Closure, Mapping[str, bytes]]:
    """What the query needs to go on, with its bytes."""
    planned = CheckpointReader(store).closure()
    return planned, {path: store.read(path) for path in planned.paths}


def commit_next(store: Store, batch: int) -> None:
    """Let the query have gone on: it committed the batch that was planned."""
    for partition in range(2):
        store.write(f"state/0/{partition}/{batch + 1}.delta", b"of the batch that was committed")
    store.write(f"commits/{batch}", json.dumps({"nextBatchWatermarkMs": 0}).join(["v1\n", ""]).encode())
