"""What is measured, in which order, and what comes of it: rounds of rooms, one for each store."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from bench.stores.kinds import DELTAS, KINDS, USUAL_DELTAS
from bench.stores.rows import write_rows
from bench.tree import environment
from streambank.advice.of_job import WRITE_BYTES

LOADED = DELTAS + 1
"""Batches after the one that brings all keys, so that there is a snapshot."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        kinds: Names of stores, in the order of a round.
        keys: Numbers of keys.
        shares: Which parts of the keys a batch changes.
        rounds: How often at most.
        batches: Batches of each share in a round.
        partitions: Partitions of the state.
        heap_mb: Heap of each JVM.
    """

    kinds: Sequence[str]
    keys: Sequence[int]
    shares: Sequence[float]
    rounds: int
    batches: int
    partitions: int
    heap_mb: int


@dataclass(slots=True)
class Cell:
    """What was measured of one store with one number of keys, room by room.

    Attributes:
        restart_s: Of each round.
        batches: By share: each batch.
        files: By share: what its batches added to the state, round by round.
        cpu_ms: By share: what a batch used of the processors, of each round.
        native_bytes: Of each round, as the next ones.
        peak_bytes: The most.
        heap_bytes: In the heap.
        memory_bytes: What Spark reports (`memoryUsedBytes`).
        state_bytes: The state's files.
    """

    restart_s: list[float] = field(default_factory=list)
    batches: dict[float, list[dict[str, Any]]] = field(default_factory=dict)
    files: dict[float, list[dict[str, int]]] = field(default_factory=dict)
    cpu_ms: dict[float, list[float]] = field(default_factory=dict)
    native_bytes: list[int] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    heap_bytes: list[int] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    state_bytes: list[int] = field(default_factory=list)

    def add(self, found: Mapping[str, Any], shares: Sequence[float]) -> None:
        """Take what a room found; its first stage brings all keys."""
        self.restart_s.append(found["restart_s"])
        for share, stage in zip(shares, found["stages"][1:], strict=True):
            self.batches.setdefault(share, []).extend(stage["batches"])
            self.files.setdefault(share, []).append(stage["files"])
            self.cpu_ms.setdefault(share, []).append(stage["cpu_ms"] / len(stage["batches"]))
        for name in ("native_bytes", "peak_bytes", "heap_bytes", "state_bytes"):
            getattr(self, name).append(found[name])
        self.memory_bytes.append(
            max(one["memory_bytes"] for each in found["stages"] for one in each["batches"])
        )

    def written_bytes(self, share: float, partitions: int) -> float:
        """What a batch adds to the checkpoint, where every tenth makes a snapshot as by default.

        RocksDB without changelog has no changes: its batches write files of RocksDB, all of them counted.
        """
        files, batches = self.files[share], len(self.batches[share])
        changes = sum(one["changes_bytes"] for one in files) / batches
        if not changes:
            return sum(one["snapshot_bytes"] for one in files) / batches
        every = [one for each in self.files.values() for one in each]
        snapshots = sum(one["snapshots"] for one in every) / partitions
        snapshot = sum(one["snapshot_bytes"] for one in every) / snapshots if snapshots else 0.0
        return changes + snapshot / USUAL_DELTAS

    def figures(self, partitions: int) -> dict[str, Any]:
        """Figures as the measurements keep them: of batches the shortest, of all else medians.

        The shortest is the one that other work on the machine has disturbed least.
        """
        names = ("native_bytes", "peak_bytes", "heap_bytes", "memory_bytes", "state_bytes")
        return {
            "rounds": len(self.restart_s),
            "restart_s": round(statistics.median(self.restart_s), 2),
            **{name: max(0, int(statistics.median(getattr(self, name)))) for name in names},
            "shares": {
                f"{share:g}": {
                    "batch_ms": min(one["batch_ms"] for one in batches),
                    "commit_ms": min(one["commit_ms"] for one in batches),
                    "median_ms": round(statistics.median(one["batch_ms"] for one in batches)),
                    "cpu_ms": round(statistics.median(self.cpu_ms[share])),
                    "written_bytes": int(self.written_bytes(share, partitions)),
                    "batches": len(batches),
                }
                for share, batches in self.batches.items()
            },
        }

    def row_bytes(self) -> float | None:
        """Bytes of a key and its value as RocksDB keeps them; None where it did not."""
        every = [one["metrics"] for batches in self.batches.values() for one in batches]
        puts = sum(one.get("rocksdbPutCount", 0) for one in every)
        written = sum(one.get("rocksdbTotalBytesWritten", 0) for one in every)
        return written / puts - WRITE_BYTES if puts else None


Found = dict[str, dict[int, Cell]]
"""By store and number of keys."""


def measure(plan: Plan, folder: Path, until: float, say: Callable[[str], None]) -> tuple[Found, int]:
    """Measure in rounds: each store once in a round, so that what slows the machine slows all of them.

    Args:
        plan: What is measured.
        folder: Where to write.
        until: When the last round ends at the latest, by the monotonic clock; the first is always begun.
        say: Called with how far it is.

    Returns:
        The cells, and how many rounds there were.

    Raises:
        RuntimeError: A room failed.
    """
    inputs = _prepare(plan, folder, say)
    found: Found = {kind: {keys: Cell() for keys in plan.keys} for kind in plan.kinds}
    done, longest_s = 0, 0.0
    while done < plan.rounds and (not done or time.monotonic() + longest_s < until):
        began, place = time.monotonic(), folder / f"round-{done}"
        for kind in plan.kinds:
            runs = [
                {
                    "folder": str(place / f"{kind}-{keys}"),
                    "stages": [inputs[keys].load, *inputs[keys].shares],
                    "restart": inputs[keys].restart,
                }
                for keys in plan.keys
            ]
            rooms = room(
                {
                    "folder": str(place),
                    "runs": runs,
                    "conf": KINDS[kind].conf,
                    "partitions": plan.partitions,
                    "heap_mb": plan.heap_mb,
                }
            )
            for keys, one in zip(plan.keys, rooms, strict=True):
                found[kind][keys].add(one, plan.shares)
            say(f"round {done + 1}: {kind}: {time.monotonic() - began:.0f} s")
        shutil.rmtree(place)
        done += 1
        longest_s = max(longest_s, time.monotonic() - began)
    return found, done


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files of rows for one number of keys: all stores read the same."""

    load: list[str]
    restart: list[str]
    shares: list[list[str]]


def _prepare(plan: Plan, folder: Path, say: Callable[[str], None]) -> dict[int, Inputs]:
    place = folder / "inputs"
    place.mkdir(parents=True)
    written = count()

    def file(rows: int, keys: int) -> str:
        target = place / f"{next(written)}.parquet"
        write_rows(target, max(1, rows), keys)
        return str(target)

    found = {}
    for keys in plan.keys:
        some = int(keys * min(plan.shares))
        found[keys] = Inputs(
            [file(keys, keys)],
            [file(some, keys)],
            [[file(int(keys * share), keys) for _ in range(plan.batches)] for share in plan.shares],
        )
    say(f"{next(written)} files of rows are written")
    return found


def room(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A room in another process.

    Raises:
        RuntimeError: It failed.
    """
    whole = {"runs": [], **spec}
    done = subprocess.run(
        [sys.executable, "-m", "bench.stores.room", json.dumps(whole)],
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"a room failed: {done.stderr[-2000:]}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found
