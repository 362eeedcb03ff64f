"""What a compaction wins for the next start of a query: files, bytes, and seconds to its first batch.

    python -m bench.next_start [BATCHES] [ROUNDS]

A query that counts per key runs BATCHES (120) batches in each of two layouts of its state, and ends with one
committed. Then it is started ROUNDS (7) times from copies of its checkpoint: as it was left, after
`streambank compact --stopped`, and from a savepoint of it with the state rewritten by `streambank state
compact`, less one key. A start is the time from `start()` to the first new entry of the commit log, in one
JVM that is warm, with no state in memory; what starting a JVM takes is not in it. The three take turns, so
that whatever else this machine does hits all of them. One line of JSON comes out for each layout and kind.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from streambank.compaction.compact import CompactionRequest, compact
from streambank.compaction.purge import purge
from streambank.compaction.quarantine import Quarantine
from streambank.compaction.quiet_check import HELD
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.rewrite.request import carry_out
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.state.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_PER_BATCH = 2_000
KEYS = 50_000
PARTITIONS = 4
TIMEOUT_S = 900.0
POLL_S = 0.005
_STATE = "org.apache.spark.sql.execution.streaming.state."
_CONF = "spark.sql.streaming.stateStore."
LAYOUTS = {
    "hdfs": {f"{_CONF}providerClass": f"{_STATE}HDFSBackedStateStoreProvider"},
    "rocksdb-changelog": {
        f"{_CONF}providerClass": f"{_STATE}RocksDBStateStoreProvider",
        f"{_CONF}rocksdb.changelogCheckpointing.enabled": "true",
    },
}


def own_spark() -> SparkSession:
    """A Spark of this process."""
    from pyspark.sql import SparkSession as Session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = Session.Builder().master("local[2]").config("spark.ui.enabled", "false")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def start(spark: SparkSession, layout: str, checkpoint: Path) -> StreamingQuery:
    """Start the query, batches as fast as they go."""
    from pyspark.sql import functions as F

    session = spark.newSession()
    for key, value in LAYOUTS[layout].items():
        session.conf.set(key, value)
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
    rows = source.load().withColumn("key", F.col("value") * 7919 % KEYS)
    counts = rows.groupBy("key").agg(F.count("*").alias("count"), F.max("timestamp").alias("last"))
    writer = counts.writeStream.format("noop").outputMode("update")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def until_committed(query: StreamingQuery, checkpoint: Path, batch: int) -> None:
    """Wait for the commit of a batch.

    Raises:
        RuntimeError: The query ended, or it took too long.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while not (checkpoint / f"commits/{batch}").exists():
        if not query.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"batch {batch} did not come: {query.exception()}")
        time.sleep(POLL_S)


def end_after_a_batch(spark: SparkSession, query: StreamingQuery, checkpoint: Path) -> None:
    """Let the query end with the batch that runs, so that every start that is measured plans a new one.

    Raises:
        RuntimeError: It did not end in time, or with a batch that is planned only.
    """
    jvm: Any = spark._jvm
    terminated = getattr(jvm, "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$")
    inner: Any = query._jsq.streamingQuery()
    inner.state().set(getattr(terminated, "MODULE$"))
    ended = query.awaitTermination(int(TIMEOUT_S))
    query.stop()
    planned, committed = newest(checkpoint / "offsets"), newest(checkpoint / "commits")
    if not ended or planned != committed:
        raise RuntimeError(f"batch {planned} is planned and {committed} committed: measure again")


def newest(log: Path) -> int:
    """The newest entry of a log of a checkpoint."""
    return max(int(path.name) for path in log.iterdir() if path.name.isdigit())


def forget_state(spark: SparkSession) -> None:
    """Drop the state that this JVM has in memory, as a new one has none."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def kinds(spark: SparkSession, layout: str, folder: Path, batches: int) -> dict[str, Path]:
    """The checkpoint as it was left, compacted, and with its state rewritten."""
    left, compacted, rewritten = (folder / name for name in ("as it was left", "compacted", "rewritten"))
    query = start(spark, layout, left)
    until_committed(query, left, batches - 1)
    end_after_a_batch(spark, query, left)
    forget_state(spark)
    shutil.copytree(left, compacted)
    quarantine = open_store(str(folder / "quarantine"))
    compact(open_store(str(compacted)), quarantine, CompactionRequest(stopped=True, watch=HELD))
    purge(Quarantine(quarantine))
    repository = Repository.open(open_store(str(folder / "repository")), create=True)
    saved = take(TakeRequest(open_store(str(left)), repository, "bench")).savepoint
    order = RewriteRequest(operation="compact", where="key.key = 0")
    staging = Staging("local[2]", str(folder / "work"), print)
    made = carry_out(SourceSavepoint(spark, repository, "bench", saved, staging), order)
    assert made.savepoint is not None
    restore(
        RestoreRequest(
            repository, made.savepoint, job="bench", into=open_store(str(rewritten)), sink="accept"
        )
    )
    return {place.name: place for place in (left, compacted, rewritten)}


def seconds(spark: SparkSession, layout: str, place: Path, folder: Path) -> float:
    """How long one start from a copy takes to its first commit."""
    forget_state(spark)
    copy = folder / "copy"
    shutil.copytree(place, copy)
    next_batch = newest(copy / "commits") + 1
    began = time.perf_counter()
    query = start(spark, layout, copy)
    try:
        until_committed(query, copy, next_batch)
        return time.perf_counter() - began
    finally:
        query.stop()
        shutil.rmtree(copy, ignore_errors=True)


def main(batches: int = 120, rounds: int = 7) -> None:
    """Measure, and print."""
    spark = own_spark()
    for layout in LAYOUTS:
        with TemporaryDirectory(prefix="next-start-") as name:
            folder = Path(name)
            places = kinds(spark, layout, folder, batches)
            seconds(spark, layout, places["compacted"], folder)  # the first one warms the JVM up
            took: dict[str, list[float]] = {kind: [] for kind in places}
            for _ in range(rounds):
                for kind, place in places.items():
                    took[kind].append(seconds(spark, layout, place, folder))
            for kind, place in places.items():
                files = [path for path in place.rglob("*") if path.is_file()]
                found = {
                    "layout": layout,
                    "checkpoint": kind,
                    "batches": batches,
                    "files": len(files),
                    "bytes": sum(path.stat().st_size for path in files),
                    "median_s": round(statistics.median(took[kind]), 3),
                    "least_s": round(min(took[kind]), 3),
                    "most_s": round(max(took[kind]), 3),
                }
                print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
