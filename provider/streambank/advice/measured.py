"""Measurements that advice is based on: `python -m bench.stores` writes them beside bench/STORES.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from streambank.core.json_text import loads

FILE = Path(__file__).with_name("measurements.json")
_LEAST = 1e-9
"""In place of nothing, which has no logarithm."""
TITLES = {
    "hdfs": "HDFS-backed",
    "rocksdb": "RocksDB",
    "rocksdb-changelog": "RocksDB with changelog",
    "rocksdb-v2": "RocksDB with changelog, format v2",
}


@dataclass(frozen=True, slots=True)
class Updated:
    """Batches that change one part of the keys.

    Attributes:
        batch_ms: A whole batch: the shortest, which other work has disturbed least.
        commit_ms: The commit of the state, summed over the tasks; the shortest, too.
        cpu_ms: What a batch uses of the processors on average. It does not depend on other work beside it, so
            stores are compared by it.
        written_bytes: What a batch adds to the checkpoint, snapshots included.
    """

    batch_ms: float
    commit_ms: float
    cpu_ms: float
    written_bytes: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One store with one number of keys; medians.

    Attributes:
        restart_s: From another start of the query to the commit of its first batch, in a JVM that is warm.
        state_bytes: All files of its state, with the versions that Spark retains.
        shares: By the part of the keys that a batch changes.
    """

    keys: int
    restart_s: float
    heap_bytes: float
    native_bytes: float
    state_bytes: float
    shares: Mapping[float, Updated]


@dataclass(frozen=True, slots=True)
class Measurements:
    """What was measured, and where.

    Attributes:
        load: The load average before it: far above the cores, times by the clock mean little.
        stores: By store, by rising numbers of keys.
    """

    made: str
    command: str
    spark: str
    machine: str
    rounds: int
    partitions: int
    row_bytes: int
    load: float
    stores: Mapping[str, Sequence[Measured]]

    @property
    def origin(self) -> str:
        """Where a figure is from, for people."""
        return f"Spark {self.spark}, {self.machine}, {self.made}"

    @property
    def most_keys(self) -> int:
        return max(one.keys for each in self.stores.values() for one in each)


def read_measurements(path: Path = FILE) -> Measurements:
    """The measurements of a file."""
    data = loads(path.read_bytes())
    return Measurements(
        stores={
            name: tuple(sorted((_measured(int(keys), one) for keys, one in each.items()), key=_keys))
            for name, each in data["stores"].items()
        },
        **{name: data[name] for name in ("made", "command", "spark", "machine", "rounds", "partitions")},
        row_bytes=data["row_bytes"],
        load=data["load"],
    )


@cache
def measurements() -> Measurements:
    """Those that come with this release."""
    return read_measurements()


def _keys(one: Measured) -> int:
    return one.keys


def _measured(keys: int, data: Mapping[str, Any]) -> Measured:
    shares = {
        float(share): Updated(one["batch_ms"], one["commit_ms"], one["cpu_ms"], one["written_bytes"])
        for share, one in data["shares"].items()
    }
    return Measured(
        keys, data["restart_s"], data["heap_bytes"], data["native_bytes"], data["state_bytes"], shares
    )


def nearest(measured: Sequence[Measured], keys: int) -> Measured:
    """The measurement with the number of keys that is nearest by its ratio."""
    return min(measured, key=lambda one: abs(math.log(one.keys / max(1, keys))))


def nearest_share(one: Measured, share: float) -> float:
    """The measured part of the keys that is nearest by its ratio."""
    return min(one.shares, key=lambda known: abs(math.log(known / max(1e-9, share))))


def between(points: Sequence[tuple[float, float]], at: float) -> float:
    """A value between measured ones, by a line between their logarithms.

    Below the smallest the value is that of the smallest: a batch has a part that no key takes. Above the
    largest the line through the last two points goes on, without logarithms: each key takes as much as those
    between them, and never less than nothing.

    Args:
        points: Where, and the value there; by rising places, at least one.
    """
    if at <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if at <= right:
            part = math.log(at / left) / math.log(right / left)
            return math.exp(math.log(max(_LEAST, low)) * (1 - part) + math.log(max(_LEAST, high)) * part)
    (left, low), (right, high) = ((0.0, 0.0), *points)[-2:]
    return high + max(0.0, (high - low) / (right - left)) * (at - right)


def over_keys(measured: Sequence[Measured], keys: int, of: Callable[[Measured], float]) -> float:
    """A figure at a number of keys."""
    return between([(one.keys, of(one)) for one in measured], keys)


def over_share(
    measured: Sequence[Measured], keys: int, share: float, of: Callable[[Updated], float]
) -> float:
    """A figure of batches at a number of keys and a part of them."""
    return over_keys(
        measured,
        keys,
        lambda one: between([(known, of(one.shares[known])) for known in sorted(one.shares)], share),
    )
