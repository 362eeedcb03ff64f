"""What may be asked of `advise` and `plan-memory`, each option once: name, type and help.

The command line makes its options of these fields, and reads sizes as bytes and durations as seconds.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar


def option(metavar: str, help: str, *, off: str = "") -> Any:
    """A field that a person may give; None where it is not given.

    Args:
        metavar: `N` for a whole number above 0, `X` for a number, `SIZE`, `DURATION`; empty for a switch.
        help: What it is.
        off: The flag that switches it off.
    """
    return field(default=None, metadata={"metavar": metavar, "help": help, "off": off})


def flag_of(one: Field[Any]) -> str:
    """What the command line calls a field: `--block-cache` of `block_cache_bytes`."""
    unit = {"SIZE": "_bytes", "DURATION": "_s"}.get(one.metadata["metavar"], "")
    return f"--{one.name.removesuffix(unit).replace('_', '-')}"


@dataclass(frozen=True)
class StateRequest:
    """The state that is kept."""

    PANEL: ClassVar = "The state"
    state_size_bytes: int | None = option(
        "SIZE", "Uncompressed keys and values, such as 10g; in place of --keys or of --row-bytes."
    )
    keys: int | None = option("N", "Rows of the state.")
    row_bytes: int | None = option("N", "Bytes of a key and its value, 100 by default.")
    update_share: float | None = option(
        "X",
        "The part of the rows that a batch changes: 0.1 for one of ten, which advise takes by default.",
    )


@dataclass(frozen=True)
class PlaceRequest:
    """The executors."""

    PANEL: ClassVar = "Where it runs"
    executors: int | None = option("N", "Executors, 1 by default.")
    cores: int | None = option("N", "Task slots of an executor, 1 by default.")
    partitions: int | None = option(
        "N", "Partitions of the state (spark.sql.shuffle.partitions when the query first ran)."
    )
    executor_memory_bytes: int | None = option("SIZE", "spark.executor.memory, the heap: 1g by default.")
    python_worker_bytes: int | None = option(
        "SIZE",
        "What one Python worker takes, such as 200m, if the query has Python UDFs, applyInPandasWithState or "
        "transformWithStateInPandas: one works for each core.",
    )


@dataclass(frozen=True)
class RocksDBRequest:
    """RocksDB: how many there are, and their settings."""

    PANEL: ClassVar = "RocksDB's settings"
    stores: int | None = option(
        "N",
        "Stores of all stateful operators: 1 of an aggregation, 4 of a join of two streams, 1 "
        "of transformWithState; 1 by default.",
    )
    block_cache_bytes: int | None = option(
        "SIZE", "blockCacheSizeMB of each instance, 8m by default; not of bounded memory."
    )
    write_buffer_bytes: int | None = option(
        "SIZE", "writeBufferSizeMB; Spark's default of -1 leaves RocksDB's 64m."
    )
    write_buffers: int | None = option("N", "maxWriteBufferNumber; Spark's default of -1 leaves RocksDB's 2.")
    block_size_bytes: int | None = option("SIZE", "blockSizeKB, 4k by default.")
    column_families: int | None = option(
        "N",
        "Real column families of an instance: 1 in Spark, whose are virtual; as many as states in Flink.",
    )
    key_bytes: int | None = option("N", "Bytes of a key, for the index: 40 by default.")
    changelog: bool | None = option(
        "",
        "changelogCheckpointing: write buffers live until the next snapshot; off by default.",
        off="--no-changelog",
    )
    min_deltas: int | None = option("N", "minDeltasForSnapshot, 10 by default; with a changelog.")
    bounded: bool | None = option(
        "",
        "boundedMemoryUsage: one cache for all instances of an executor; off by default.",
        off="--unbounded",
    )
    max_memory_bytes: int | None = option("SIZE", "maxMemoryUsageMB of bounded memory, 500m by default.")
    write_buffer_ratio: float | None = option("X", "writeBufferCacheRatio of bounded memory, 0.5 by default.")
    high_priority_ratio: float | None = option(
        "X", "highPriorityPoolRatio of bounded memory, 0.1 by default."
    )


@dataclass(frozen=True)
class LoadRequest:
    """What says, with the keys, how large the state gets; a row lives until the watermark has passed it."""

    PANEL: ClassVar = "The state before the job runs"
    window_s: float | None = option("DURATION", "Length of the windows.")
    slide_s: float | None = option(
        "DURATION", "How far the next window begins after one; by default they follow each other."
    )
    watermark_s: float | None = option("DURATION", "The delay of withWatermark.")
    dedup_s: float | None = option("DURATION", "The delay of dropDuplicatesWithinWatermark.")
    ttl_s: float | None = option(
        "DURATION",
        "How long a row lives otherwise: a TTL; of a join watermark and interval together.",
    )
    trigger_s: float | None = option("DURATION", "Time between two batches.")
    events_per_second: float | None = option("X", "Events a second; --keys are theirs.")


def flags_given(*requests: Any) -> dict[str, Any]:
    """What was given of some requests, by its flag."""
    return {
        flag_of(one): value
        for request in requests
        for one in fields(request)
        if (value := getattr(request, one.name)) is not None
    }
