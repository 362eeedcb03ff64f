"""RocksDB as state store: whole uploads with each batch, and memory that no heap setting bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from streambank.checkpoint.closure import Closure
from streambank.checkpoint.grammar import Kind
from streambank.checkpoint.index import CheckpointIndex
from streambank.core.finding import Finding
from streambank.core.units import say_bytes
from streambank.doctor.spark_conf import MIB, SparkConf
from streambank.doctor.subject import NO_PROGRESS, UNCOUNTED, UNDECLARED, CheckResult, SkippedCheck
from streambank.sla.history.point import Point

PREFIX = "spark.sql.streaming.stateStore.rocksdb."
CHANGELOG = f"{PREFIX}changelogCheckpointing.enabled"
BOUNDED = f"{PREFIX}boundedMemoryUsage"
MAX_MEMORY = f"{PREFIX}maxMemoryUsageMB"
DEFAULT_MAX_MEMORY_MB = 500
DEFAULT_CACHE_MB, DEFAULT_BUFFER_MB, DEFAULT_BUFFERS = 8, 64, 2
"""Block cache of Spark's default, memtables of RocksDB's own (Spark's -1 leaves them as they are)."""
HIGH_COMMIT_SHARE = 0.25
"""A batch that spends so much of its time on the commit of its state is held up by it."""
MIN_COMMIT_S = 0.2
MIN_BATCHES = 5
FULL_SHARE, CALM_SHARE = 0.9, 0.5
"""RocksDB takes nearly all that there is; or so little that what it may take is only worth knowing."""


def check_changelog(
    closure: Closure, index: CheckpointIndex, points: Sequence[Point]
) -> Iterator[CheckResult]:
    """RocksDB that uploads a snapshot with each batch, where that takes much of the batch."""
    if closure.spark.provider != "rocksdb" or _has_changelogs(index):
        return
    known = [
        (point.values["state_commit_s"], point.values["batch_s"], point.values.get("updated_rows"))
        for point in points
        if "state_commit_s" in point.values and point.values.get("batch_s", 0.0) > 0
    ]
    if len(known) < MIN_BATCHES:
        yield SkippedCheck(
            "what RocksDB's uploads without changelog cost each batch",
            f"Only {len(known)} batches have progress records, and {MIN_BATCHES} are needed."
            if known
            else NO_PROGRESS[0],
            NO_PROGRESS[1],
        )
        return
    commit_s, batch_s = median(one[0] for one in known), median(one[1] for one in known)
    if commit_s < MIN_COMMIT_S or commit_s / batch_s < HIGH_COMMIT_SHARE:
        return
    churn = [updated for _, _, updated in known if updated is not None]
    wrote = f", and {median(churn):,.0f} state rows are written" if churn else ""
    yield Finding(
        "rocksdb-without-changelog",
        "warning",
        "state",
        f"Its files hold no changelog. Of a batch of {batch_s:.3g} s, the commit of the state "
        f"takes {commit_s:.3g} s, {commit_s / batch_s:.0%}{wrote} (medians of {len(known)} batches).",
        "Each batch waits until RocksDB has flushed its memory and a snapshot is uploaded.",
        f"Set {CHANGELOG}=true and restart the query: it continues from the same checkpoint.",
    )


def _has_changelogs(index: CheckpointIndex) -> bool:
    return any(
        files.of(Kind.CHANGELOG)
        for operator in index.operators.values()
        for files in operator.stores.values()
    )


def check_memory(
    closure: Closure,
    reported: Mapping[int, Sequence[Mapping[str, object]]],
    conf: SparkConf | None,
    machine_bytes: int | None,
) -> Iterator[CheckResult]:
    """RocksDB's memory, which is outside of the heap, against what an executor has there."""
    if closure.spark.provider != "rocksdb":
        return
    what = "whether RocksDB's memory fits an executor"
    if conf is None:
        yield SkippedCheck(what, *UNDECLARED)
        return
    executors = conf.executors
    if executors is None or executors < 1:
        yield SkippedCheck(what, *UNCOUNTED)
        return
    room, whose = _room(conf, machine_bytes)
    if room is None:
        yield SkippedCheck(
            what,
            f"How much memory an executor has beside its heap is not known with the master {conf.master}.",
            "Compare the workers' memory with the heap by hand.",
        )
        return
    yield from _against_room(closure, reported, conf, executors, room, whose)


def _room(conf: SparkConf, machine_bytes: int | None) -> tuple[int | None, str]:
    if conf.in_containers:
        return (
            conf.overhead_bytes,
            f"an executor's container has beside its heap ({conf.said('spark.executor.memoryOverhead')})",
        )
    if conf.is_local and machine_bytes is not None:
        left = max(0, machine_bytes - conf.heap_bytes)
        return left, (
            f"this machine's {say_bytes(machine_bytes)} leave beside the heap of {say_bytes(conf.heap_bytes)}"
        )
    return None, ""


def _against_room(
    closure: Closure,
    reported: Mapping[int, Sequence[Mapping[str, object]]],
    conf: SparkConf,
    executors: int,
    room: int,
    whose: str,
) -> Iterator[Finding]:
    effect = (
        "The cluster ends an executor that takes more than its container has, in the middle of a batch."
        if conf.in_containers
        else "The machine runs out of memory, and kills the process that uses the most."
    )
    total = _used_bytes(reported)
    used = None if total is None else total / executors
    if used is not None and used > FULL_SHARE * room:
        yield Finding(
            "rocksdb-memory",
            "error",
            "state",
            f"RocksDB takes {say_bytes(used)} in each of {executors} executor(s) (memoryUsedBytes), and "
            f"{say_bytes(room)} are what {whose}.",
            effect,
            f"Set {BOUNDED}=true with a {MAX_MEMORY} that fits, or give more spark.executor.memoryOverhead.",
        )
        return
    may, how = _may_take(closure, conf, executors)
    if may > room:
        now = "how much it uses now is not known" if used is None else f"it takes {say_bytes(used)} now"
        yield Finding(
            "rocksdb-memory",
            "info" if used is not None and used < CALM_SHARE * room else "warning",
            "state",
            f"RocksDB may take {say_bytes(may)} in each of {executors} executor(s): {how}; and "
            f"{say_bytes(room)} are what {whose}; {now}.",
            effect,
            f"Set {BOUNDED}=true with a {MAX_MEMORY} that fits, or give more spark.executor.memoryOverhead.",
        )


def _may_take(closure: Closure, conf: SparkConf, executors: int) -> tuple[int, str]:
    if conf.is_on(BOUNDED):
        limit_mb = conf.whole(MAX_MEMORY) or DEFAULT_MAX_MEMORY_MB
        return limit_mb * MIB, f"{BOUNDED} is on, with {conf.said(MAX_MEMORY)} of {limit_mb} MiB"
    instances = sum(store.partitions for operator in closure.operators for store in operator.stores)
    each = -(-instances // executors)
    cache_mb = conf.whole(f"{PREFIX}blockCacheSizeMB") or DEFAULT_CACHE_MB
    buffer_mb, buffers = conf.whole(f"{PREFIX}writeBufferSizeMB"), conf.whole(f"{PREFIX}maxWriteBufferNumber")
    buffer_mb = buffer_mb if buffer_mb is not None and buffer_mb > 0 else DEFAULT_BUFFER_MB
    buffers = buffers if buffers is not None and buffers > 0 else DEFAULT_BUFFERS
    return each * (cache_mb + buffer_mb * buffers) * MIB, (
        f"{BOUNDED} is off, so each of {each} stores has a block cache of {cache_mb} MiB and up to {buffers} "
        f"write buffers of {buffer_mb} MiB"
    )


def _used_bytes(reported: Mapping[int, Sequence[Mapping[str, object]]]) -> float | None:
    newest = [said[-1].get("memoryUsedBytes") for said in reported.values() if said]
    known = [value for value in newest if isinstance(value, int) and not isinstance(value, bool)]
    return float(sum(known)) if known else None
