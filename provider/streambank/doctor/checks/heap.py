"""HDFS-backed state lies in the heap of the executors: what it takes there, and what there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from streambank.checkpoint.closure import Closure
from streambank.core.finding import Finding
from streambank.core.units import say_bytes
from streambank.doctor.spark_conf import SparkConf
from streambank.doctor.subject import NO_PROGRESS, UNCOUNTED, UNDECLARED, CheckResult, SkippedCheck

LARGE_HEAP_BYTES = 2_000_000_000
"""From here on the garbage collector stands in the way: pauses of seconds were reported from 2 to 4 GB on."""
FULL_SHARE = 0.8
"""With so much of its heap taken by state, a JVM has no room left for a batch."""
_TO_ROCKSDB = (
    "Move the query to RocksDB, whose state is not in the heap: stop it with a savepoint, and restore what "
    "`streambank state migrate` makes of that. Until then, give it more {setting}, or more executors."
)


def check_heap(
    closure: Closure, reported: Mapping[int, Sequence[Mapping[str, object]]], conf: SparkConf | None
) -> Iterator[CheckResult]:
    """State of the HDFS-backed provider against the heap, by what Spark reported, oldest batch first."""
    if closure.spark.provider != "hdfs":
        return
    held = _memory_bytes(reported)
    if held is None:
        yield from _by_files(closure)
        return
    executors = conf.executors if conf is not None else None
    yield from _large(held, executors)
    if conf is None:
        yield SkippedCheck("whether HDFS-backed state fits the heap", *UNDECLARED)
        return
    if executors is None or executors < 1:
        yield SkippedCheck("whether HDFS-backed state fits the heap", *UNCOUNTED)
        return
    each = held / executors
    heap, user = conf.heap_bytes, conf.user_bytes
    if each <= user:
        return
    of = "" if executors == 1 else f" in each of {executors} executors"
    yield Finding(
        "hdfs-state-exceeds-heap",
        "error" if each >= FULL_SHARE * heap else "warning",
        "state",
        f"HDFS-backed state takes {say_bytes(each)}{of} (memoryUsedBytes, several versions of it), the heap "
        f"has {say_bytes(heap)} ({conf.said(conf.heap_setting)}), and Spark leaves {say_bytes(user)} of it "
        "to what it does not account for.",
        "Batches get slower by garbage collection, and the driver or an executor ends with OutOfMemoryError.",
        _TO_ROCKSDB.format(setting=conf.heap_setting),
    )


def _memory_bytes(reported: Mapping[int, Sequence[Mapping[str, object]]]) -> float | None:
    """The middle of what all operators together took, over the batches; None where Spark did not say."""
    columns = [
        [
            float(value)
            for one in said
            if isinstance(value := one.get("memoryUsedBytes"), int) and not isinstance(value, bool)
        ]
        for said in reported.values()
    ]
    return sum(median(column) for column in columns) if columns and all(columns) else None


def _by_files(closure: Closure) -> Iterator[CheckResult]:
    """Without figures of Spark: files are compressed, so they are less than what is in the heap."""
    size_bytes = sum(
        part.base_bytes for operator in closure.operators for store in operator.stores for part in store.parts
    )
    if size_bytes >= LARGE_HEAP_BYTES:
        yield _held(
            f"Its newest snapshots have {say_bytes(size_bytes)} in files, compressed; in the heap it is more."
        )
    yield SkippedCheck("whether HDFS-backed state fits the heap", *NO_PROGRESS)


def _large(held: float, executors: int | None) -> Iterator[Finding]:
    each = held / max(1, executors or 1)
    if each >= LARGE_HEAP_BYTES:
        among = (
            "over executors whose number is not declared" if executors is None else f"in {executors} JVM(s)"
        )
        yield _held(f"It takes {say_bytes(held)} (memoryUsedBytes), {among}.")


def _held(cause: str) -> Finding:
    return Finding(
        "large-heap-state",
        "warning",
        "state",
        f"The state is HDFS-backed, that is in the heap, and large. {cause}",
        f"From {say_bytes(LARGE_HEAP_BYTES)} on the garbage collector stops a JVM for seconds at a time.",
        _TO_ROCKSDB.format(setting="heap"),
    )
