"""Which state store: by measurements of all of them, and the settings that go with it.

The measured query counts per key (`bench/stores`). A figure between measured numbers of keys is read from a
line between their logarithms; the sentence that uses it quotes the nearest measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streambank.advice.measured import (
    TITLES,
    Measurements,
    Updated,
    nearest,
    nearest_share,
    over_keys,
    over_share,
)
from streambank.advice.memory import (
    ALLOCATOR,
    OVERHEAD,
    ROUND_BYTES,
    Cluster,
    MemoryPlan,
    RocksDBSettings,
    StateLoad,
    check_cluster,
    overhead_bytes,
    plan_memory,
    say_mib,
    unknown_of_python,
)
from streambank.core.errors import InputError
from streambank.core.shape import JsonObject
from streambank.core.units import say_bytes, say_duration
from streambank.doctor.checks.heap import LARGE_HEAP_BYTES
from streambank.doctor.checks.rocksdb import BOUNDED, CHANGELOG, MAX_MEMORY
from streambank.doctor.spark_conf import MIB, SparkConf

STATE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
TIE = 1.25
"""Batches that differ by less in processor time are the same: rounds on one machine scatter as much."""
BUSY_LOAD = 4.0
"""From this load average on times by the clock are said not to count: the machine had other work."""
BUSY_SHARE = 0.8
"""Of the latency asked for that a batch may take: the rest is for batches that are larger than usual."""
REACH = 10
"""Times the most keys that were measured: beyond that a straight line says nothing."""
_BY_FORMULA = "the formula, held against measured memory in bench/STORES.md"
PREFERENCE = ("rocksdb-changelog", "hdfs", "rocksdb")
"""Which one is chosen of those that are the same; format v2 is for what it guards against, not for time."""


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """What a store is chosen for.

    Attributes:
        update_share: The part of the rows that a batch changes.
        latency_s: How long a batch may take; None for any.
    """

    keys: int
    row_bytes: int
    update_share: float
    latency_s: float | None
    cluster: Cluster

    @property
    def state_bytes(self) -> int:
        """Uncompressed bytes of the state."""
        return self.keys * self.row_bytes


@dataclass(frozen=True, slots=True)
class Reason(JsonObject):
    """A sentence, and the measurement behind it.

    Attributes:
        measurement: The figures, with Spark and machine; or where a fact is from.
    """

    text: str
    measurement: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of Spark."""

    name: str
    value: str
    reason: Reason

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, **self.reason.to_dict()}


@dataclass(frozen=True, slots=True)
class Expected:
    """What one store would take.

    Attributes:
        cpu_ms: What a batch uses of the processors.
        commit_ms: The commit of the state, summed over tasks.
        heap_bytes: In the heaps of all executors together.
        native_bytes: Outside of them; never more than the bound that is advised.
        written_bytes: What a batch adds to the checkpoint.
        fits: Whether it fits the heap, and is no burden to the garbage collector there (as `doctor` judges).
        cost_ms: `cpu_ms` by which stores are compared: with no more keys than were measured, since a line
            that goes on beyond that makes much of small differences.
    """

    store: str
    batch_ms: float
    cpu_ms: float
    commit_ms: float
    restart_s: float
    heap_bytes: float
    native_bytes: float
    written_bytes: float
    fits: bool
    cost_ms: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "batch_ms": round(self.batch_ms),
            "cpu_ms": round(self.cpu_ms),
            "commit_ms": round(self.commit_ms),
            "restart_s": round(self.restart_s, 2),
            "heap_bytes": round(self.heap_bytes),
            "native_bytes": round(self.native_bytes),
            "written_bytes": round(self.written_bytes),
            "fits": self.fits,
        }


@dataclass(frozen=True, slots=True)
class Advice(JsonObject):
    """A store, its settings, and why.

    Attributes:
        expected: What each store would take, the chosen one first.
        memory: What RocksDB takes; None for a store in the heap.
    """

    store: str
    reasons: tuple[Reason, ...]
    settings: tuple[Setting, ...]
    expected: tuple[Expected, ...]
    memory: MemoryPlan | None
    unknown: tuple[str, ...]


def advise(asked: StoreRequest, found: Measurements) -> Advice:
    """Choose a store.

    Raises:
        InputError: A number makes no sense, or there are more keys than measurements say anything of (code
            `bad-input`).
    """
    _check(asked, found)
    expected = {name: _expect(asked, name, found) for name in found.stores}
    fitting = [one for name in PREFERENCE if name in expected and (one := expected[name]).fits]
    best = min(fitting, key=lambda one: one.cost_ms)
    chosen = next(one for one in fitting if one.cost_ms <= best.cost_ms * TIE)
    others = sorted((one for one in expected.values() if one is not chosen), key=lambda one: one.cost_ms)
    reasons = list(_reasons(asked, chosen, expected, found))
    memory, settings = _settings(asked, chosen, found)
    most = math.inf if memory is None else memory.resident * asked.cluster.executors
    return Advice(
        chosen.store,
        tuple(reasons),
        tuple(settings),
        tuple(_within(one, most) for one in (chosen, *others)),
        memory,
        tuple(_unknown(asked, found)),
    )


def _within(one: Expected, most_bytes: float) -> Expected:
    """With no more outside of the heap than the bound allows."""
    if one.store == "hdfs":
        return one
    return replace(one, native_bytes=min(one.native_bytes, most_bytes))


def _check(asked: StoreRequest, found: Measurements) -> None:
    check_cluster(asked.cluster)
    if asked.keys < 1 or asked.row_bytes < 1:
        raise InputError(
            "A state has one key and one byte a row at least.",
            code="bad-input",
            hint="Give --keys and --row-bytes, or --state-size with one of them.",
        )
    if asked.keys > REACH * found.most_keys:
        raise InputError(
            f"{asked.keys:,} keys are more than {REACH} times the {found.most_keys:,} that were measured: "
            "what a batch of them takes is not known.",
            code="bad-input",
            hint=f"Measure it: `{found.command}`. `streambank plan-memory` calculates RocksDB's memory.",
        )
    if not 0 < asked.update_share <= 1:
        raise InputError(
            "--update-share must be above 0, and 1 at most.",
            code="bad-input",
            hint="Give the part of the keys that a batch changes: 0.1 for one of ten.",
        )
    if asked.latency_s is not None and asked.latency_s <= 0:
        raise InputError(
            "--latency must be above 0.", code="bad-input", hint="Give how long a batch may take: 1s."
        )


def user_bytes(heap_bytes: int) -> int:
    """What Spark leaves of a heap to objects that it does not account for, as HDFS-backed state is."""
    return SparkConf("yarn", {"spark.executor.memory": f"{heap_bytes}b"}).user_bytes


def _expect(asked: StoreRequest, name: str, found: Measurements) -> Expected:
    measured = found.stores[name]
    heap = _heap_bytes(asked, name, found)
    each = heap / asked.cluster.executors
    fits = name != "hdfs" or each <= min(user_bytes(asked.cluster.heap_bytes), LARGE_HEAP_BYTES)

    def of_batch(what: Callable[[Updated], float], keys: int = asked.keys) -> float:
        return over_share(measured, keys, asked.update_share, what)

    cost_ms = of_batch(lambda one: one.cpu_ms, min(asked.keys, found.most_keys))
    return Expected(
        name,
        of_batch(lambda one: one.batch_ms),
        of_batch(lambda one: one.cpu_ms),
        of_batch(lambda one: one.commit_ms),
        over_keys(measured, asked.keys, lambda one: one.restart_s),
        heap,
        over_keys(measured, asked.keys, lambda one: one.native_bytes),
        of_batch(lambda one: one.written_bytes),
        fits,
        cost_ms,
    )


def _heap_bytes(asked: StoreRequest, name: str, found: Measurements) -> float:
    heap = over_keys(found.stores[name], asked.keys, lambda one: one.heap_bytes)
    if name != "hdfs":
        return heap
    # Rows in the heap: those of the measurement, and what these have more or less.
    return max(heap / 10, heap + asked.keys * (asked.row_bytes - found.row_bytes))


def quote(found: Measurements, name: str, keys: int, share: float) -> str:
    """The measurement of a store that is nearest, for people."""
    one = nearest(found.stores[name], keys)
    part = nearest_share(one, share)
    batch = one.shares[part]
    return (
        f"{TITLES[name]}, {one.keys:,} keys, {part:.0%} changed: batch {batch.batch_ms:,.0f} ms "
        f"({batch.cpu_ms:,.0f} ms of a processor), commit "
        f"{batch.commit_ms:,.0f} ms, {say_bytes(batch.written_bytes)} written, restart "
        f"{one.restart_s:.1f} s, heap {say_bytes(one.heap_bytes)}, outside of it "
        f"{say_bytes(one.native_bytes)} ({found.origin})"
    )


def _reasons(
    asked: StoreRequest, chosen: Expected, expected: Mapping[str, Expected], found: Measurements
) -> list[Reason]:
    def said(name: str) -> str:
        return quote(found, name, asked.keys, asked.update_share)

    reasons = []
    if "hdfs" in expected:
        reasons.append(Reason(_in_heap(asked, found), said("hdfs")))
    for name, other in expected.items():
        if other is chosen:
            continue
        ratio = other.cost_ms / chosen.cost_ms
        text = f"A batch uses {ratio:.2f} times as much of the processors with {TITLES[name]}"
        if not other.fits:
            text += ", which is too much for the heap."
        elif ratio > TIE:
            text += "."
        else:
            text += f", which is {'the same here' if ratio >= 1 / TIE else 'less'}{_writes(other, chosen)}."
        reasons.append(Reason(text, said(name)))
    if asked.latency_s is not None:
        part = f"A batch of {TITLES[chosen.store]} uses {say_duration(chosen.cpu_ms / 1000)} of one processor"
        if chosen.cpu_ms <= 1000 * asked.latency_s * BUSY_SHARE:
            text = (
                f"{part}, which is below the {say_duration(asked.latency_s)} asked for. Commits and disks "
                f"are not in it: by the clock a batch takes {say_duration(chosen.batch_ms / 1000)}, by "
                "measurements on two cores."
            )
        else:
            cells = found.stores[chosen.store]
            least = min(one.cpu_ms for cell in cells for one in cell.shares.values())
            text = (
                f"{part}: more than {BUSY_SHARE:.0%} of the {say_duration(asked.latency_s)} asked for, so it "
                "needs several cores with as many partitions, or smaller batches. "
                f"{say_duration(least / 1000)} are what any batch uses."
            )
        reasons.append(Reason(text, said(chosen.store)))
    return reasons


def _in_heap(asked: StoreRequest, found: Measurements) -> str:
    each = _heap_bytes(asked, "hdfs", found) / asked.cluster.executors
    room = user_bytes(asked.cluster.heap_bytes)
    takes = (
        f"In the heap the state takes {say_bytes(each)} in each of {asked.cluster.executors} executor(s), and"
    )
    of = f"in the {say_bytes(room)} that a heap of {say_mib(asked.cluster.heap_bytes)} leaves to it"
    if each > room:
        return f"{takes} does not fit {of}."
    if each > LARGE_HEAP_BYTES:
        return (
            f"{takes} fits {of}; but from {say_bytes(LARGE_HEAP_BYTES)} on the garbage collector stops a JVM "
            "for seconds at a time."
        )
    return f"{takes} fits {of}."


def _writes(one: Expected, other: Expected) -> str:
    times = (
        f"{one.written_bytes / other.written_bytes:.2g} times"
        if other.written_bytes
        else "more than nothing, not"
    )
    return f"; it writes {times} as much into the checkpoint"


def _settings(
    asked: StoreRequest, chosen: Expected, found: Measurements
) -> tuple[MemoryPlan | None, list[Setting]]:
    measured = quote(found, chosen.store, asked.keys, asked.update_share)
    cluster = asked.cluster
    plan: MemoryPlan | None = None
    if chosen.store == "hdfs":
        provider, settings = HDFS, _beside_the_heap(cluster)
    else:
        provider = ROCKSDB
        plan, settings = _of_rocksdb(asked, chosen.store, found, measured)
    return plan, [
        _set(f"{STATE}providerClass", provider, f"The state is kept in {TITLES[chosen.store]}.", measured),
        *settings,
        _set(
            "spark.sql.shuffle.partitions",
            str(cluster.partitions),
            f"{cluster.executors} executor(s) of {cluster.cores} core(s); the first batch fixes it.",
            "Spark keeps it in the checkpoint's offset log (OffsetSeqMetadata).",
        ),
    ]


def _set(name: str, value: str, why: str, measurement: str) -> Setting:
    return Setting(name, value, Reason(why, measurement))


def _workers(cluster: Cluster) -> str:
    if not cluster.python_bytes:
        return ""
    return f", {say_mib(cluster.python_bytes)} for {cluster.cores} Python worker(s)"


def _beside_the_heap(cluster: Cluster) -> list[Setting]:
    if not cluster.python_bytes:
        return []
    jvm, overhead = overhead_bytes(cluster, 0)
    why = f"{say_mib(jvm)} for the JVM itself{_workers(cluster)}."
    default = "Spark's default beside the heap, and --python-worker for each core"
    return [_set(OVERHEAD, f"{overhead // MIB}m", why, default)]


def _of_rocksdb(
    asked: StoreRequest, store: str, found: Measurements, measured: str
) -> tuple[MemoryPlan, list[Setting]]:
    cluster, changelog = asked.cluster, store != "rocksdb"
    load = StateLoad(asked.keys, asked.row_bytes, update_share=asked.update_share)
    bound, why_bound = _bound(plan_memory(RocksDBSettings(changelog=changelog), cluster, load))
    bounded = RocksDBSettings(changelog=changelog, bounded=True, max_memory_bytes=bound)
    plan = plan_memory(bounded, cluster, load)
    settings = []
    if changelog:
        both = measured
        if "rocksdb" in found.stores:
            both = f"{quote(found, 'rocksdb', asked.keys, asked.update_share)}; {measured}"
        why = "A commit writes what a batch changed, and no files of RocksDB."
        settings.append(_set(CHANGELOG, "true", why, both))
    if store == "rocksdb-v2":
        why = "Each attempt of a task writes files with other names."
        settings.append(_set(f"{STATE}checkpointFormatVersion", "2", why, measured))
    return plan, [
        *settings,
        _set(
            BOUNDED,
            "true",
            "One cache bounds all instances of an executor; each has up to 136 MiB without it.",
            "8 MiB of block cache and 2 write buffers of 64 MiB (Spark 4.3 and RocksDB 9 by default)",
        ),
        _set(
            MAX_MEMORY,
            str(bound // MIB),
            f"{why_bound} With it they take {say_bytes(plan.expected or 0)}. streambank plan-memory shows "
            "each part.",
            _BY_FORMULA,
        ),
        _set(
            OVERHEAD,
            f"{plan.memory_overhead // MIB}m",
            f"The bound with {ALLOCATOR - 1:.0%} for the allocator and {plan.instances} instances, and "
            f"{say_mib(plan.jvm_overhead)} for the JVM itself{_workers(cluster)}.",
            _BY_FORMULA,
        ),
    ]


def _bound(free: MemoryPlan) -> tuple[int, str]:
    """A bound that leaves room, and why: twice what is expected without it, and enough for each instance."""
    expected = free.expected or 0
    least = free.instances * MIB * 8 / 7 / 0.5  # a block of each
    why = (
        "this is twice that, rounded up."
        if 2 * expected >= least
        else ("this is the least that has room for a block of each.")
    )
    return int(ROUND_BYTES * math.ceil(max(2 * expected, least) / ROUND_BYTES)), (
        f"Without a bound the {free.instances} instances of an executor are expected to take "
        f"{say_bytes(expected)}; {why}"
    )


def _unknown(asked: StoreRequest, found: Measurements) -> list[str]:
    unknown = [
        f"How fast your machines, disks and storage are: all figures are of {found.origin}, local disk, "
        f"{found.partitions} partitions. Compare ratios, and measure yours: `{found.command}`.",
        f"What your query does beside its state: the measured one counts per key, {found.row_bytes} B a row.",
    ]
    if found.load > BUSY_LOAD:
        unknown.append(
            "How long batches, commits and restarts take on a quiet machine: the load average was "
            f"{found.load:.1f} before the measurement, so times by the clock are too long. Stores are "
            "compared by processor time and by bytes, which other work hardly changes."
        )
    if asked.keys > found.most_keys:
        unknown.append(
            f"How it is with {asked.keys:,} keys: {found.most_keys:,} are the most that were measured, and "
            "beyond that each key is taken to cost as much as one between the last two measurements."
        )
    most_share = max(share for cell in found.stores.values() for keys in cell for share in keys.shares)
    if asked.update_share > most_share:
        unknown.append(
            f"How it is if {asked.update_share:.0%} of the rows change: {most_share:.0%} is the most that "
            "was measured, and a line goes on beyond that."
        )
    unknown += unknown_of_python(asked.cluster)
    if not 0.5 <= asked.row_bytes / found.row_bytes <= 2:
        unknown.append(
            f"How batches change with rows of {asked.row_bytes:,} B: only memory is calculated with them."
        )
    return unknown
