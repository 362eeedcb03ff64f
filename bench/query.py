"""A streaming query to take savepoints of: counts per key in RocksDB, batches as fast as they go.

    python -m bench.query CHECKPOINT DURATIONS

Every batch's duration, as Spark itself reports it, is appended to DURATIONS as `batch milliseconds`. It ends
when its standard input does.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ROWS_PER_BATCH = 20_000
KEYS = 200_000


def start(checkpoint: Path) -> tuple[SparkSession, StreamingQuery]:
    """Start the query in a separate Spark."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS_PER_BATCH)
        .option("numPartitions", 2)
        .load()
    )
    counts = rows.groupBy((F.col("value") * 7919 % KEYS).alias("key")).agg(
        F.count("*").alias("count"), F.max("timestamp").alias("last")
    )
    query = (
        counts.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    return spark, query


def main(checkpoint: Path, durations: Path) -> None:
    """Run the query until nobody listens any more."""
    spark, query = start(checkpoint)
    ended = threading.Event()
    threading.Thread(target=_until_the_end_of_input, args=(ended,), daemon=True).start()
    last = -1
    with durations.open("w", encoding="utf-8", buffering=1) as file:
        while not ended.wait(0.2):
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            for progress in query.recentProgress:
                if progress.batchId > last:
                    last = progress.batchId
                    file.write(f"{progress.batchId} {progress.batchDuration}\n")
    query.stop()
    spark.stop()


def _until_the_end_of_input(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
