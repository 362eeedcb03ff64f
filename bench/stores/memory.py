"""RocksDB's memory as `streambank plan-memory` calculates it, beside what it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.stores.kinds import DELTAS, KINDS
from bench.stores.rooms import LOADED, room
from bench.stores.rows import write_rows
from streambank.advice.memory import Cluster, RocksDBSettings, StateLoad, plan_memory
from streambank.doctor.checks.rocksdb import PREFIX
from streambank.doctor.spark_conf import MIB

UPDATES = 2 * DELTAS + 1
"""Batches that are watched: with a whole time between two snapshots."""
SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings of RocksDB that are tried.

    Attributes:
        title: What the page calls it.
        settings: As the calculator has them.
        partitions: Partitions of the state.
    """

    title: str
    settings: RocksDBSettings
    partitions: int = 4

    @property
    def conf(self) -> dict[str, str]:
        """As Spark has them."""
        usual, mine = RocksDBSettings(), self.settings
        found = dict(KINDS["rocksdb-changelog"].conf)
        if mine.block_cache_bytes != usual.block_cache_bytes:
            found[f"{PREFIX}blockCacheSizeMB"] = str(mine.block_cache_bytes // MIB)
        if mine.write_buffer_bytes != usual.write_buffer_bytes:
            found[f"{PREFIX}writeBufferSizeMB"] = str(mine.write_buffer_bytes // MIB)
        if mine.bounded:
            found[f"{PREFIX}boundedMemoryUsage"] = "true"
            found[f"{PREFIX}maxMemoryUsageMB"] = str(mine.max_memory_bytes // MIB)
        return found


VARIANTS = (
    Variant("defaults", RocksDBSettings(changelog=True, min_deltas=DELTAS)),
    Variant("defaults, 16 partitions", RocksDBSettings(changelog=True, min_deltas=DELTAS), 16),
    Variant(
        "write buffers of 2 MiB, a cache of 4 MiB",
        RocksDBSettings(
            changelog=True, min_deltas=DELTAS, write_buffer_bytes=2 * MIB, block_cache_bytes=4 * MIB
        ),
    ),
    Variant(
        "bounded, 32 MiB",
        RocksDBSettings(changelog=True, min_deltas=DELTAS, bounded=True, max_memory_bytes=32 * MIB),
    ),
)


def measure(folder: Path, keys: int, heap_mb: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Run a query with each variant; batches change one key of ten.

    Raises:
        RuntimeError: A room failed.
    """
    place = folder / "memory-inputs"
    place.mkdir(parents=True)

    def file(number: int, rows: int) -> str:
        target = place / f"{number}.parquet"
        write_rows(target, rows, keys)
        return str(target)

    load = [file(number, int(keys * SHARE) if number else keys) for number in range(LOADED + 1)]
    updates = [file(LOADED + 1 + number, int(keys * SHARE)) for number in range(UPDATES)]
    found = []
    for number, variant in enumerate(VARIANTS):
        run = {"folder": str(folder / f"memory-{number}"), "stages": [load, updates]}
        (one,) = room(
            {
                "folder": str(folder),
                "runs": [run],
                "conf": variant.conf,
                "partitions": variant.partitions,
                "heap_mb": heap_mb,
            }
        )
        counted = [batch["memory_bytes"] for batch in one["stages"][1]["batches"]]
        pinned = [
            batch["metrics"].get("rocksdbPinnedBlocksMemoryUsage", 0) for batch in one["stages"][1]["batches"]
        ]
        found.append(
            {
                "title": variant.title,
                "counted_bytes": max(counted),
                "pinned_bytes": max(pinned),
                "native_bytes": one["native_bytes"],
                "peak_bytes": one["peak_bytes"],
            }
        )
        say(f"memory: {variant.title}: {max(counted) / MIB:.1f} MiB counted")
    return found


def predicted(variant: Variant, keys: int, row_bytes: int, key_bytes: int) -> tuple[int, int]:
    """What the calculator says of a variant: bytes that RocksDB counts, and resident ones."""
    plan = plan_memory(
        variant.settings,
        Cluster(cores=2, partitions=variant.partitions),
        StateLoad(keys, row_bytes, key_bytes, SHARE),
    )
    return plan.expected or 0, plan.resident
