"""What may be asked of `advise` and `plan-memory`, each option once: name, type and help.

The command line makes its options of these fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from streambank.core.options import Option, flag_of, options_of


@dataclass(frozen=True)
class StateRequest:
    """The state that is kept."""

    PANEL: ClassVar = "The state"
    state_size_bytes: Annotated[
        int | None,
        Option(
            "Uncompressed keys and values, such as 10g; in place of --keys or of --row-bytes.", metavar="SIZE"
        ),
    ] = None
    keys: Annotated[int | None, Option("Rows of the state.", metavar="N", least=1)] = None
    row_bytes: Annotated[
        int | None, Option("Bytes of a key and its value, 100 by default.", metavar="N", least=1)
    ] = None
    update_share: Annotated[
        float | None,
        Option(
            "The part of the rows that a batch changes: 0.1 for one of ten, which advise takes by default.",
            metavar="X",
        ),
    ] = None


@dataclass(frozen=True)
class PlaceRequest:
    """The executors."""

    PANEL: ClassVar = "Where it runs"
    executors: Annotated[int | None, Option("Executors, 1 by default.", metavar="N", least=1)] = None
    cores: Annotated[int | None, Option("Task slots of an executor, 1 by default.", metavar="N", least=1)] = (
        None
    )
    partitions: Annotated[
        int | None,
        Option(
            "Partitions of the state (spark.sql.shuffle.partitions when the query first ran).",
            metavar="N",
            least=1,
        ),
    ] = None
    executor_memory_bytes: Annotated[
        int | None, Option("spark.executor.memory, the heap: 1g by default.", metavar="SIZE")
    ] = None
    python_worker_bytes: Annotated[
        int | None,
        Option(
            "What one Python worker takes, such as 200m, if the query has Python UDFs, "
            "applyInPandasWithState or transformWithStateInPandas: one works for each core.",
            metavar="SIZE",
        ),
    ] = None


@dataclass(frozen=True)
class RocksDBRequest:
    """RocksDB: how many there are, and their settings."""

    PANEL: ClassVar = "RocksDB's settings"
    stores: Annotated[
        int | None,
        Option(
            "Stores of all stateful operators: 1 of an aggregation, 4 of a join of two streams, 1 of "
            "transformWithState; 1 by default.",
            metavar="N",
            least=1,
        ),
    ] = None
    block_cache_bytes: Annotated[
        int | None,
        Option("blockCacheSizeMB of each instance, 8m by default; not of bounded memory.", metavar="SIZE"),
    ] = None
    write_buffer_bytes: Annotated[
        int | None, Option("writeBufferSizeMB; Spark's default of -1 leaves RocksDB's 64m.", metavar="SIZE")
    ] = None
    write_buffers: Annotated[
        int | None,
        Option("maxWriteBufferNumber; Spark's default of -1 leaves RocksDB's 2.", metavar="N", least=1),
    ] = None
    block_size_bytes: Annotated[int | None, Option("blockSizeKB, 4k by default.", metavar="SIZE")] = None
    column_families: Annotated[
        int | None,
        Option(
            "Real column families of an instance: 1 in Spark, whose are virtual; as many as states in Flink.",
            metavar="N",
            least=1,
        ),
    ] = None
    key_bytes: Annotated[
        int | None, Option("Bytes of a key, for the index: 40 by default.", metavar="N", least=1)
    ] = None
    changelog: Annotated[
        bool | None,
        Option(
            "changelogCheckpointing: write buffers live until the next snapshot; off by default.",
            off="--no-changelog",
        ),
    ] = None
    min_deltas: Annotated[
        int | None, Option("minDeltasForSnapshot, 10 by default; with a changelog.", metavar="N", least=1)
    ] = None
    bounded: Annotated[
        bool | None,
        Option(
            "boundedMemoryUsage: one cache for all instances of an executor; off by default.",
            off="--unbounded",
        ),
    ] = None
    max_memory_bytes: Annotated[
        int | None, Option("maxMemoryUsageMB of bounded memory, 500m by default.", metavar="SIZE")
    ] = None
    write_buffer_ratio: Annotated[
        float | None, Option("writeBufferCacheRatio of bounded memory, 0.5 by default.", metavar="X")
    ] = None
    high_priority_ratio: Annotated[
        float | None, Option("highPriorityPoolRatio of bounded memory, 0.1 by default.", metavar="X")
    ] = None


@dataclass(frozen=True)
class LoadRequest:
    """What says, with the keys, how large the state gets; a row lives until the watermark has passed it."""

    PANEL: ClassVar = "The state before the job runs"
    window_s: Annotated[float | None, Option("Length of the windows.")] = None
    slide_s: Annotated[
        float | None, Option("How far the next window begins after one; by default they follow each other.")
    ] = None
    watermark_s: Annotated[float | None, Option("The delay of withWatermark.")] = None
    dedup_s: Annotated[float | None, Option("The delay of dropDuplicatesWithinWatermark.")] = None
    ttl_s: Annotated[
        float | None,
        Option("How long a row lives otherwise: a TTL; of a join watermark and interval together."),
    ] = None
    trigger_s: Annotated[float | None, Option("Time between two batches.")] = None
    events_per_second: Annotated[float | None, Option("Events a second; --keys are theirs.", metavar="X")] = (
        None
    )


@dataclass(frozen=True)
class AdviseRequest(PlaceRequest, StateRequest):
    """For which state, and where, a state store is chosen."""

    latency_s: Annotated[float | None, Option("How long a batch may take.")] = None


@dataclass(frozen=True)
class PlanMemoryRequest(LoadRequest, RocksDBRequest, StateRequest, PlaceRequest):
    """Of which state, and where, the memory is calculated."""


def flags_given(request: Any, *kinds: type[Any]) -> dict[str, Any]:
    """What was given of the options that some classes of a request declare, by its flag."""
    return {
        flag_of(option): value
        for kind in kinds
        for option in options_of(kind)
        if (value := getattr(request, option.name)) is not None
    }
