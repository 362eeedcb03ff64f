"""What RocksDB takes in each executor, beside the JVM: by its settings, and by what the state needs.

Spark opens one RocksDB for each partition of each store, with one memory for all column families, which are
virtual (`RocksDB.scala`). It has write buffers (memtables), a block cache, and the indexes and Bloom filters
of its files. Unbounded, each instance has its own of all three; with `boundedMemoryUsage` all instances of an
executor share one cache that is charged for all three (`RocksDBMemoryManager`). Flink opens one RocksDB for
each operator and slot, with write buffers for each state: `column_families` counts them.

RocksDB's own rules: https://github.com/facebook/rocksdb/wiki/Memory-usage-in-RocksDB
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from streambank.core.errors import InputError
from streambank.core.shape import OMIT_EMPTY, JsonName, JsonObject
from streambank.core.units import say_bytes
from streambank.doctor.checks.rocksdb import (
    BOUNDED,
    DEFAULT_BUFFER_MB,
    DEFAULT_BUFFERS,
    DEFAULT_CACHE_MB,
    DEFAULT_MAX_MEMORY_MB,
    MAX_MEMORY,
)
from streambank.doctor.spark_conf import DEFAULT_OVERHEAD_FACTOR, MIB, MIN_OVERHEAD_BYTES

ENTRY_BYTES = 24
"""Of each row in a write buffer beside key and value: its number, two lengths, and links of the skip list."""
ARENA_BYTES = MIB
"""A write buffer grows by this (RocksDB: `arena_block_size`, an eighth of the buffer, 1 MiB at most)."""
FILTER_BITS = 10
"""Of a key in the Bloom filter (Spark's `BloomFilter()`, RocksDB's default)."""
HANDLE_BYTES = 12
"""Of a block in the index beside its key."""
INSTANCE_BYTES = MIB
"""Of each open RocksDB beside what it counts: statistics, logs, file handles (measured: bench/STORES.md)."""
ALLOCATOR = 1.5
"""Resident memory against what RocksDB counts, for the allocator's fragments and a soft bound: rather too
much than too little (measured: bench/STORES.md)."""
ROUND_BYTES = 64 * MIB
LEAST_BUFFER_BYTES = 64 * 1024
"""RocksDB makes smaller write buffers as large (`SanitizeOptions`)."""
MOST = 10**15
"""Of whatever is counted: more is a slip, and beyond what the formulas can calculate."""
OVERHEAD, PYSPARK = "spark.executor.memoryOverhead", "spark.executor.pyspark.memory"


@dataclass(frozen=True, slots=True)
class RocksDBSettings:
    """Settings of RocksDB that decide on memory; defaults are those of Spark 4.3 and RocksDB 9.

    Attributes:
        block_cache_bytes: Of each column family; of no effect if memory is bounded.
        column_families: Real column families of an instance: 1 in Spark, one for each state in Flink.
        changelog: Whether write buffers are flushed by snapshots only.
        min_deltas: Versions between two snapshots.
        max_memory_bytes: Of all instances of an executor.
        write_buffer_ratio: The part of it for write buffers.
        high_priority_ratio: The part of it for indexes and filters.
    """

    block_cache_bytes: int = DEFAULT_CACHE_MB * MIB
    write_buffer_bytes: int = DEFAULT_BUFFER_MB * MIB
    write_buffers: int = DEFAULT_BUFFERS
    block_bytes: int = 4096
    column_families: int = 1
    changelog: bool = False
    min_deltas: int = 10
    bounded: bool = False
    max_memory_bytes: int = DEFAULT_MAX_MEMORY_MB * MIB
    write_buffer_ratio: float = 0.5
    high_priority_ratio: float = 0.1


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the stores are.

    Attributes:
        cores: Task slots of each.
        partitions: Partitions of each store: `spark.sql.shuffle.partitions` when the query first ran.
        stores: Stores of all stateful operators: 1 of an aggregation or a deduplication, 4 of a join of two
            streams (1 from `join.stateFormatVersion` 3 on), 1 of transformWithState whatever its variables.
        python_worker_bytes: What one Python worker takes; None where that is not known.
        pyspark_bytes: `spark.executor.pyspark.memory`: of all Python workers of an executor, beside the
            overhead; None where it is not set.
        overhead_bytes: `spark.executor.memoryOverhead`, or its factor of the heap; None where neither is set.
    """

    executors: int = 1
    cores: int = 1
    partitions: int = 200
    stores: int = 1
    heap_bytes: int = 1024 * MIB
    python_worker_bytes: int | None = None
    pyspark_bytes: int | None = None
    overhead_bytes: int | None = None

    @property
    def python_bytes(self) -> int:
        """What Python workers take of the overhead: one works for each core, unless they have their own part.

        Spark adds `spark.executor.pyspark.memory` to a container beside the overhead, and limits each worker
        to its part of it (`ResourceProfile`, `BasePythonRunner`).
        """
        return 0 if self.pyspark_bytes is not None else self.cores * (self.python_worker_bytes or 0)

    def instances(self, executors: int | None = None) -> int:
        """RocksDB instances in the fullest executor."""
        return math.ceil(self.partitions * self.stores / (executors or self.executors))


@dataclass(frozen=True, slots=True)
class StateLoad:
    """The state that is kept.

    Attributes:
        rows: Rows of all stores together.
        update_share: The part of the rows that a batch writes; None for as many as there can be.
    """

    rows: int
    row_bytes: int = 100
    key_bytes: int = 40
    update_share: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryPart(JsonObject):
    """One kind of memory.

    Attributes:
        each: Bytes of an instance as expected; None where the state is not known.
        executor: Bytes of an executor as expected.
        most: Bytes of an executor that the settings allow; None where only the state limits them.
        query: Of which query, where several are planned together; empty otherwise.
    """

    name: Annotated[str, JsonName("part")]
    each: Annotated[int | None, JsonName("each_bytes")]
    executor: Annotated[int | None, JsonName("executor_bytes")]
    most: Annotated[int | None, JsonName("most_bytes")]
    how: str
    query: Annotated[str, OMIT_EMPTY] = ""


@dataclass(frozen=True, slots=True)
class MemoryPlan(JsonObject):
    """What RocksDB takes in one executor.

    Attributes:
        instances: RocksDB instances in the fullest executor.
        after_loss: The same with one executor fewer; None where there is only one.
        expected: Bytes that RocksDB counts in an executor, as expected; None where the state is not known.
        most: Bytes that it may count there by the settings.
        resident: Bytes that the process gets beside the JVM's own, with instances and the allocator: of the
            bound where there is one, else of `expected`, or of `most` if that is unknown.
        jvm_overhead: What Spark by default leaves beside the heap: metaspace, stacks, direct buffers.
        python: Bytes of Python workers in the overhead.
        memory_overhead: What to set as `spark.executor.memoryOverhead`.
        container: What the cluster gives an executor then: heap, overhead, `spark.executor.pyspark.memory`.
    """

    instances: int
    after_loss: Annotated[int | None, JsonName("instances_after_loss")]
    parts: tuple[MemoryPart, ...]
    expected: Annotated[int | None, JsonName("expected_bytes")]
    most: Annotated[int, JsonName("most_bytes")]
    resident: Annotated[int, JsonName("resident_bytes")]
    jvm_overhead: Annotated[int, JsonName("jvm_overhead_bytes")]
    python: Annotated[int, JsonName("python_bytes")]
    memory_overhead: Annotated[int, JsonName("memory_overhead_bytes")]
    container: Annotated[int, JsonName("container_bytes")]
    warnings: tuple[str, ...]
    unknown: tuple[str, ...]


def plan_memory(settings: RocksDBSettings, cluster: Cluster, load: StateLoad | None = None) -> MemoryPlan:
    """What RocksDB takes in one executor, and what that means beside the JVM.

    Args:
        load: The state; without it only what the settings allow is known.

    Raises:
        InputError: A number makes no sense (code `bad-input`).
    """
    return plan_queries(settings, {"": (cluster, load)})


def plan_queries(
    settings: RocksDBSettings, queries: Mapping[str, tuple[Cluster, StateLoad | None]]
) -> MemoryPlan:
    """The same of several queries of one application, whose stores share the executors.

    Args:
        queries: Of each query where its stores are, and its state. All have the same executors.

    Raises:
        InputError: A number makes no sense (code `bad-input`).
    """
    parts: list[MemoryPart] = []
    for query, (cluster, load) in queries.items():
        _check(settings, cluster)
        if load is not None and load.update_share is not None and not 0 < load.update_share <= 1:
            raise InputError(
                "--update-share must be above 0, and 1 at most.",
                code="bad-input",
                hint="Give the part of the rows that a batch changes: 0.1 for one of ten.",
            )
        instances = cluster.instances()
        found = [
            _write_buffers(settings, instances, cluster, load),
            _block_cache(settings, instances, cluster, load),
        ]
        if load is not None:
            found += _tables(settings, instances, cluster, load)
        parts += [replace(part, query=query) for part in found]
    known = [part.executor for part in parts if part.executor is not None]
    expected = sum(known) if all(load is not None for _, load in queries.values()) else None
    if settings.bounded:
        most = settings.max_memory_bytes
        expected = None if expected is None else min(expected, settings.max_memory_bytes)
    else:
        allowed = [part.most for part in parts if part.most is not None]
        tables = sum(part.executor or 0 for part in parts if part.most is None)
        most = sum(allowed) + tables
    counted = most if settings.bounded or expected is None else expected
    instances, after = _instances(queries)
    resident = int(counted * ALLOCATOR) + instances * INSTANCE_BYTES
    jvm, overhead = overhead_bytes(cluster, resident)
    return MemoryPlan(
        instances, after, tuple(parts), expected, most, resident, jvm, cluster.python_bytes, overhead,
        cluster.heap_bytes + overhead + (cluster.pyspark_bytes or 0),
        tuple(_warnings(settings, queries, parts, resident, jvm, overhead)),
        unknown_of_python(cluster),
    )  # fmt: skip


def _instances(queries: Mapping[str, tuple[Cluster, StateLoad | None]]) -> tuple[int, int | None]:
    clusters = [cluster for cluster, _ in queries.values()]
    fewer = clusters[0].executors - 1
    after = sum(cluster.instances(fewer) for cluster in clusters) if fewer else None
    return sum(cluster.instances() for cluster in clusters), after


def overhead_bytes(cluster: Cluster, resident: int) -> tuple[int, int]:
    """What the JVM itself takes beside its heap, and what to set as `spark.executor.memoryOverhead`."""
    jvm = max(MIN_OVERHEAD_BYTES, int(cluster.heap_bytes * DEFAULT_OVERHEAD_FACTOR))
    return jvm, ROUND_BYTES * math.ceil((jvm + resident + cluster.python_bytes) / ROUND_BYTES)


def unknown_of_python(cluster: Cluster) -> tuple[str, ...]:
    """What is not known of Python workers."""
    if cluster.python_worker_bytes is not None or cluster.pyspark_bytes is not None:
        return ()
    return (
        "What Python workers take beside the JVM (Python UDFs, applyInPandasWithState, "
        f"transformWithStateInPandas): {OVERHEAD} has to hold that, too, unless {PYSPARK} is set. Give what "
        "one of them takes as --python-worker. On Kubernetes Spark's default for PySpark is 40% of the heap.",
    )


def memtable_bytes(settings: RocksDBSettings, rows: float, row_bytes: int) -> int:
    """What the write buffers of an instance take before they are flushed.

    A buffer that is full is flushed at once beside the next one, so that only one counts for long.

    Args:
        rows: Rows that are written until then.
    """
    step = arena_bytes(settings)
    blocks = math.ceil(rows * (row_bytes + ENTRY_BYTES) / step)
    return min(max(1, blocks) * step, settings.write_buffer_bytes) * settings.column_families


def arena_bytes(settings: RocksDBSettings) -> int:
    """By how much a write buffer grows."""
    return min(ARENA_BYTES, settings.write_buffer_bytes // 8)


def write_buffer_limit(settings: RocksDBSettings) -> int:
    """What the write buffers of an instance may take: size * number * column families."""
    return settings.write_buffer_bytes * settings.write_buffers * settings.column_families


def _write_buffers(
    settings: RocksDBSettings, instances: int, cluster: Cluster, load: StateLoad | None
) -> MemoryPart:
    limit = write_buffer_limit(settings)
    families = f" * {settings.column_families} column families" if settings.column_families > 1 else ""
    how = f"{settings.write_buffers} buffers * {say_mib(settings.write_buffer_bytes)}{families}"
    most = limit * instances
    if settings.bounded:
        most = min(most, int(settings.max_memory_bytes * settings.write_buffer_ratio))
        how += f", all together {settings.write_buffer_ratio:g} * {say_mib(settings.max_memory_bytes)}"
    if load is None or load.update_share is None:
        return MemoryPart(
            "write buffers", None if load is None else limit, None if load is None else most, most, how
        )
    batches = settings.min_deltas if settings.changelog else 1
    rows = load.rows * load.update_share * batches / (cluster.partitions * cluster.stores)
    each = memtable_bytes(settings, rows, load.row_bytes)
    how = (
        f"{rows:,.0f} rows of {load.row_bytes} + {ENTRY_BYTES} B until a flush ({batches} "
        f"batch{'es' if batches > 1 else ''}), one buffer at most; all buffers: {how}"
    )
    return MemoryPart("write buffers", each, min(each * instances, most), most, how)


def _block_cache(
    settings: RocksDBSettings, instances: int, cluster: Cluster, load: StateLoad | None
) -> MemoryPart:
    if settings.bounded:
        most = int(settings.max_memory_bytes * (1 - settings.write_buffer_ratio))
        how = f"what write buffers leave of {say_mib(settings.max_memory_bytes)}, shared by all instances"
        each = most // instances
    else:
        each = settings.block_cache_bytes * settings.column_families
        most = each * instances
        how = f"{say_mib(each)} of each instance"
    if load is None:
        return MemoryPart("block cache", None, None, most, how)
    data = load.rows * load.row_bytes // (cluster.partitions * cluster.stores)
    each = min(each, data)
    return MemoryPart("block cache", each, min(each * instances, most), most, f"{how}, or less data")


def _tables(settings: RocksDBSettings, instances: int, cluster: Cluster, load: StateLoad) -> list[MemoryPart]:
    rows = load.rows / (cluster.partitions * cluster.stores)
    index = int(rows * load.row_bytes / settings.block_bytes * (load.key_bytes + HANDLE_BYTES))
    filters = int(rows * FILTER_BITS / 8)
    most = int(settings.max_memory_bytes * (1 - settings.write_buffer_ratio)) if settings.bounded else None
    where = (
        ", in the block cache" if settings.bounded else ", beside the block cache, as large as the state asks"
    )
    return [
        MemoryPart(
            "indexes", index, index * instances, most,
            f"a key of {load.key_bytes} + {HANDLE_BYTES} B for each block of {settings.block_bytes} B{where}",
        ),
        MemoryPart("filters", filters, filters * instances, most, f"{FILTER_BITS} bits a row{where}"),
    ]  # fmt: skip


def _warnings(
    settings: RocksDBSettings,
    queries: Mapping[str, tuple[Cluster, StateLoad | None]],
    parts: list[MemoryPart],
    resident: int,
    jvm: int,
    overhead: int,
) -> list[str]:
    found = []
    instances, after = _instances(queries)
    cluster = next(iter(queries.values()))[0]
    if settings.bounded:
        buffers = int(settings.max_memory_bytes * settings.write_buffer_ratio)
        needed = instances * arena_bytes(settings) * settings.column_families
        if buffers * 7 // 8 < needed:
            least = math.ceil(needed * 8 / 7 / settings.write_buffer_ratio / MIB)
            found.append(
                f"{instances} instances need {say_mib(arena_bytes(settings))} each at least to write, and "
                f"{say_mib(buffers)} are for all of them: RocksDB flushes again and again, whatever is "
                f"written. Set {MAX_MEMORY} to {least} at least, or have fewer partitions."
            )
        tables = sum(part.executor or 0 for part in parts if part.name in ("indexes", "filters"))
        room = int(settings.max_memory_bytes * (1 - settings.write_buffer_ratio))
        if tables > room:
            found.append(
                f"Indexes and filters have {say_bytes(tables)} and {say_mib(room)} are left for them, so "
                f"they are read from disk again and again. Raise {MAX_MEMORY}."
            )
        found.append(
            "The bound is soft: Spark 4.3 opens the cache without a strict limit, and write buffers pass "
            "their part while they are flushed. All queries of an executor share it, with the first one's "
            "settings."
        )
    elif cluster.overhead_bytes is None and resident > jvm:
        found.append(
            f"Memory is not bounded. RocksDB may get {say_mib(resident)}, and by default an executor has "
            f"{say_mib(jvm)} beside its heap for everything: set {OVERHEAD}, or {BOUNDED}=true."
        )
    if cluster.overhead_bytes is not None and cluster.overhead_bytes < overhead:
        found.append(
            f"An executor of the job has {say_mib(cluster.overhead_bytes)} beside its heap, and "
            f"{say_mib(overhead)} may be needed: set {OVERHEAD}, as a cluster ends an executor that takes "
            "more than its container has."
        )
    worker = cluster.python_worker_bytes
    if cluster.pyspark_bytes is not None and worker is not None:
        limit = cluster.pyspark_bytes // cluster.cores
        if limit < worker:
            found.append(
                f"{PYSPARK} limits each of {cluster.cores} Python worker(s) to {say_mib(limit)}, and one "
                f"takes {say_mib(worker)}. Set it to {math.ceil(worker * cluster.cores / MIB)}m at least."
            )
    slots = cluster.executors * cluster.cores
    if cluster.partitions < slots and len(queries) == 1:
        found.append(
            f"{cluster.partitions} partitions keep {cluster.partitions} of {slots} cores busy. The number "
            "cannot be changed in a checkpoint (`streambank rescale` writes a new one)."
        )
    if after is not None and after > instances:
        found.append(
            f"If an executor is lost, the others have {after} instances in place of {instances} until it "
            "is back: leave room for them."
        )
    if not settings.bounded:
        for query, (_, load) in queries.items():
            if load is not None and load.update_share is None:
                of_query = f" of query {query}" if query else ""
                found.append(f"The update share{of_query} is not given, so full write buffers are expected.")
    return found


def say_mib(size_bytes: int) -> str:
    """A size for people in MiB, below one in KiB, and below one of these in bytes."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    number, unit = (size_bytes / MIB, "MiB") if size_bytes >= MIB else (size_bytes / 1024, "KiB")
    return f"{number:,.0f} {unit}" if number >= 1000 else f"{number:.4g} {unit}"


def check_numbers(numbers: Mapping[str, float | None], most: int = MOST) -> None:
    """Refuse what the formulas cannot calculate with, by the option that gives it.

    Raises:
        InputError: A number is not above 0, not a number at all, or too large (code `bad-input`).
    """
    for option, value in numbers.items():
        if value is not None and not 0 < value <= most:  # NaN is neither above nor below
            small = not value > 0
            raise InputError(
                f"{option} must be above 0." if small else f"{option} must be {most:,} at most.",
                code="bad-input",
                hint=f"Leave {option} out, or give a number above 0." if small else "Check its unit.",
            )


def check_cluster(cluster: Cluster) -> None:
    """Refuse a cluster that the formulas cannot calculate with.

    Raises:
        InputError: As `check_numbers`.
    """
    check_numbers(
        {
            "--executors": cluster.executors,
            "--cores": cluster.cores,
            "--partitions": cluster.partitions,
            "--stores": cluster.stores,
            "--executor-memory": cluster.heap_bytes,
            "--python-worker": cluster.python_worker_bytes,
        }
    )


def _check(settings: RocksDBSettings, cluster: Cluster) -> None:
    check_cluster(cluster)
    numbers = {
        "--write-buffer": settings.write_buffer_bytes,
        "--write-buffers": settings.write_buffers,
        "--column-families": settings.column_families,
        "--block-cache": settings.block_cache_bytes,
        "--max-memory": settings.max_memory_bytes,
        "--block-size": settings.block_bytes,
        "--min-deltas": settings.min_deltas,
    }
    check_numbers(numbers)
    if settings.write_buffer_bytes < LEAST_BUFFER_BYTES:
        raise InputError(
            f"--write-buffer must be {LEAST_BUFFER_BYTES // 1024}k at least.",
            code="bad-input",
            hint="RocksDB has no smaller ones; Spark's setting is in MiB.",
        )
    ratios = (settings.write_buffer_ratio, settings.high_priority_ratio)
    # Not "ratios are wrong": NaN is neither right nor wrong.
    if not (ratios[0] > 0 and ratios[1] >= 0 and sum(ratios) < 1):
        raise InputError(
            "--write-buffer-ratio must be above 0, and together with --high-priority-ratio below 1.",
            code="bad-input",
            hint="Spark refuses to start a query with such settings. Its defaults are 0.5 and 0.1.",
        )
