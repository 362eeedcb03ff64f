"""Queries on one state store in one JVM: how fast they start, how long batches take, what memory they have.

    python -m bench.stores.room SPEC

SPEC is a `Spec` as JSON. The heap is resident from the start (`AlwaysPreTouch`), so what the process gets
beyond that is native memory; what lives in the heap is counted after a full collection. `jcmd` of the JDK
gives back what the allocator keeps. One line of JSON comes out: a `Found` for each query.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.stores.kinds import DELTAS, STATE
from bench.stores.rows import SCHEMA, write_rows

MAINTENANCE_S = 1
"""Spark's default is 60 s, a measurement has less time; snapshots are as many."""
WITHIN_S = 900.0
SAMPLE_S = 0.1
WARM_ROWS, WARM_BATCHES = 1_000, 3


@dataclass(frozen=True, slots=True)
class Run:
    """One query of a room.

    Attributes:
        folder: Its checkpoint and source.
        stages: Files of rows by stage, one file for each batch: they come into the source when the stage
            before is done.
        restart: Files that it reads when it is started again at the end; none: it is not.
    """

    folder: str
    stages: Sequence[Sequence[str]]
    restart: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Spec:
    """What a room is asked for.

    Attributes:
        folder: Where it may write.
        runs: Its queries, one after the other.
        conf: Spark's settings beside those of every room.
        partitions: Partitions of the state.
        heap_mb: The JVM's heap, resident from the start.
    """

    folder: str
    runs: Sequence[Run]
    conf: dict[str, str] = field(default_factory=dict)
    partitions: int = 4
    heap_mb: int = 2048

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """What `json.dumps(asdict(spec))` wrote."""
        data = json.loads(text)
        return cls(**{**data, "runs": [Run(**run) for run in data["runs"]]})


@dataclass(frozen=True, slots=True)
class Files:
    """Files of a state.

    Attributes:
        changes_bytes: Deltas and changelogs: what single batches changed.
        snapshot_bytes: All others: snapshots, and RocksDB's files.
        snapshots: How many snapshots of a partition.
    """

    changes_bytes: int = 0
    snapshot_bytes: int = 0
    snapshots: int = 0

    @classmethod
    def of(cls, state: Path) -> Files:
        """Those that are there."""
        changes = others = snapshots = 0
        for path in state.rglob("*"):
            if not path.is_file() or path.name.startswith("."):
                continue
            try:
                size = path.stat().st_size
            except FileNotFoundError:  # a file that was only there until it got its name
                continue
            if path.suffix in (".delta", ".changelog"):
                changes += size
            else:
                others += size
            snapshots += path.suffix in (".zip", ".snapshot")
        return cls(changes, others, snapshots)

    def since(self, before: Files) -> Files:
        """What came since."""
        return Files(
            self.changes_bytes - before.changes_bytes,
            self.snapshot_bytes - before.snapshot_bytes,
            self.snapshots - before.snapshots,
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage of a query took.

    Attributes:
        batches: Of each batch: rows, updated, batch_ms, commit_ms (the sum over its tasks), memory_bytes
            (`memoryUsedBytes`), and RocksDB's own metrics.
        files: What it added to the state.
        cpu_ms: What the JVM used of the processors.
    """

    batches: Sequence[dict[str, Any]]
    files: Files
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Found:
    """What a room measured of one query.

    Attributes:
        restart_s: From another `start` of the query to the commit of its first batch, in the same JVM once
            its stores are closed; None where it was not started again.
        stages: By stage.
        native_bytes: Memory outside of the heap beyond that before the query, at its end, with what the
            allocator keeps for itself given back.
        peak_bytes: The most of it at any moment, without that.
        heap_bytes: What lives in the heap beyond that, after a full collection.
        state_bytes: All files of the state.
    """

    restart_s: float | None
    stages: Sequence[Stage]
    native_bytes: int
    peak_bytes: int
    heap_bytes: int
    state_bytes: int


def main(spec: Spec) -> list[Found]:
    """Run the room."""
    spark = _session(spec)
    try:
        _warm_up(spark, Path(spec.folder) / f"warm-{time.time_ns()}")
        return [_measure(spark, run) for run in spec.runs]
    finally:
        spark.stop()


def _measure(spark: SparkSession, run: Run) -> Found:
    source, checkpoint = Path(run.folder) / "source", Path(run.folder) / "checkpoint"
    source.mkdir(parents=True)
    state, memory, stages = checkpoint / "state", Memory(spark), []
    number, before = 0, Files()
    first, rest = run.stages[0], run.stages[1:]
    began, number = 0, _deliver(first, source, 0)
    cpu_ms = memory.cpu_ms()
    query = _start(spark, source, checkpoint)
    try:
        for files in [None, *rest]:
            if files is not None:
                began, number = number, _deliver(files, source, number)
            _wait_for_batch(query, number - 1)
            reported = [json.loads(one.json) for one in query.recentProgress]
            batches = [_batch(one) for one in reported if one["batchId"] >= began and one["numInputRows"]]
            now, used_ms = Files.of(state), memory.cpu_ms()
            stages.append(Stage(batches, now.since(before), used_ms - cpu_ms))
            before, cpu_ms = now, used_ms
        native, heap = memory.now()
    finally:
        query.stop()
    peak = memory.end()
    _wait_for_maintenance()
    last = Files.of(state)
    restart_s = _restart(spark, source, checkpoint, run.restart, number) if run.restart else None
    return Found(restart_s, stages, native, peak, heap, last.changes_bytes + last.snapshot_bytes)


def _restart(spark: SparkSession, source: Path, checkpoint: Path, files: Sequence[str], number: int) -> float:
    """Seconds from the start of the query again to its first commit; its stores are closed."""
    _deliver(files, source, number)
    started = time.perf_counter()
    query = _start(spark, source, checkpoint)
    try:
        _wait(query, (checkpoint / f"commits/{number}").exists)
        return time.perf_counter() - started
    finally:
        query.stop()
        _wait_for_maintenance()


def _wait_for_maintenance() -> None:
    """Maintenance closes the stores of a query that has ended."""
    time.sleep(2.5 * MAINTENANCE_S)


def _deliver(files: Sequence[str], source: Path, first: int) -> int:
    """Put files into the source in their order; the number of the next one."""
    for number, name in enumerate(files, first):
        target = source / f"{number:06d}.parquet"
        hidden = target.with_name(f".{target.name}")
        shutil.copyfile(name, hidden)
        os.utime(hidden, (1_700_000_000 + number,) * 2)  # the order of reading
        hidden.rename(target)
    return first + len(files)


class Memory:
    """Native memory and live heap, beyond those of when it is made."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark._jvm
        if jvm is None:
            raise RuntimeError("the session has no JVM")
        self._jvm: Any = jvm
        self._pid = int(jvm.java.lang.ProcessHandle.current().pid())
        self._over = threading.Event()
        self._heap = self._live()
        self._resident = self._peak = self._read()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def now(self) -> tuple[int, int]:
        """Native memory and heap beyond those of the beginning, in bytes."""
        heap = self._live()
        return self._read() - self._resident, heap - self._heap

    def cpu_ms(self) -> float:
        """What the JVM has used of the processors."""
        fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> int:
        """The most native memory that was seen beyond that of the beginning, in bytes."""
        self._over.set()
        self._thread.join()
        return self._peak - self._resident

    def _live(self) -> int:
        self._jvm.java.lang.System.gc()
        command = ["jcmd", str(self._pid), "System.trim_native_heap"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        runtime = self._jvm.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())

    def _read(self) -> int:
        text = Path(f"/proc/{self._pid}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self._peak = max(self._peak, self._read())


def _session(spec: Spec) -> SparkSession:
    heap = f"-Xms{spec.heap_mb}m -XX:+AlwaysPreTouch"
    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings = {
        "spark.driver.memory": f"{spec.heap_mb}m",
        "spark.driver.extraJavaOptions": heap,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(spec.partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        f"{STATE}maintenanceInterval": f"{MAINTENANCE_S}s",
        f"{STATE}minDeltasForSnapshot": str(DELTAS),
        **spec.conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _start(spark: SparkSession, source: Path, checkpoint: Path) -> StreamingQuery:
    rows: DataFrame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    named = rows.withColumn("key", F.format_string("customer-%09d", "id"))
    counts = named.groupBy("key").agg(
        F.count("*").alias("count"), F.sum("amount").alias("sum"), F.max("at").alias("last")
    )
    writer = counts.writeStream.format("noop").outputMode("update")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def _warm_up(spark: SparkSession, place: Path) -> None:
    """The same query on a few rows, and its stores closed again."""
    source = place / "source"
    source.mkdir(parents=True)
    for number in range(WARM_BATCHES):
        write_rows(source / f"{number}.parquet", WARM_ROWS, WARM_ROWS)
    query = _start(spark, source, place / "checkpoint")
    try:
        _wait(query, (place / f"checkpoint/commits/{WARM_BATCHES - 1}").exists)
    finally:
        query.stop()
    _wait_for_maintenance()


def _batch(progress: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a batch."""
    (state,) = progress["stateOperators"]
    return {
        "rows": state["numRowsTotal"],
        "updated": state["numRowsUpdated"],
        "batch_ms": progress["durationMs"]["triggerExecution"],
        "commit_ms": state["commitTimeMs"],
        "memory_bytes": state["memoryUsedBytes"],
        "metrics": {
            name: value
            for name, value in state["customMetrics"].items()
            if name.startswith("rocksdb") or name == "stateOnCurrentVersionSizeBytes"
        },
    }


def _last_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)


def _wait_for_batch(query: StreamingQuery, batch: int) -> None:
    _wait(query, lambda: _last_batch(query) >= batch)


def _wait(query: StreamingQuery, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not ready():
        if query.exception() is not None or time.monotonic() > until:
            raise RuntimeError(f"the query does not get on: {query.exception()}")
        time.sleep(0.02)


if __name__ == "__main__":
    print(json.dumps([asdict(one) for one in main(Spec.from_json(sys.argv[1]))]), flush=True)
