"""A real query's state of very many keys, and two savepoints of it.

    python -m bench.million_keys FOLDER PROVIDER KEYS

Counts, sums and newest times per key, in RocksDB with changelog or HDFS-backed. The first batch brings 98 of
100 keys, and Spark has written a snapshot of each partition when the second one comes: it brings the others,
and changes one of twelve. A savepoint is taken after each. One line of JSON comes out: their ids.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store

JOB = "keys"
STATE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDERS = {
    "rocksdb": {
        f"{STATE}providerClass": ROCKSDB,
        f"{STATE}rocksdb.changelogCheckpointing.enabled": "true",
    },
    "hdfs": {f"{STATE}minDeltasForSnapshot": "0"},
}
PARTITIONS = 8
SCHEMA = "id bigint, amount bigint, at timestamp"
WITHIN_S = 600.0


def main(folder: Path, provider: str, keys: int) -> dict[str, Any]:
    """Run the query for two batches."""
    spark = _session(PROVIDERS[provider])
    source, checkpoint = folder / "source", folder / "checkpoint"
    source.mkdir(parents=True)
    repository = Repository.open(open_store(folder / "repository"), create=True)
    first = keys * 98 // 100
    query = _start(spark, source, checkpoint)
    try:
        _deliver(spark.range(first), source, 0)
        _wait(query, lambda: (checkpoint / "commits/0").exists())
        _wait(query, lambda: _snapshots(checkpoint) >= PARTITIONS)
        earlier = take(TakeRequest(open_store(checkpoint), repository, JOB, batch=0)).savepoint
        changed = spark.range(0, first, 12)
        _deliver(spark.range(first, keys).union(changed), source, 1)
        _wait(query, lambda: (checkpoint / "commits/1").exists())
    finally:
        query.stop()
    later = take(TakeRequest(open_store(checkpoint), repository, JOB, batch=1)).savepoint
    spark.stop()
    return {"earlier": earlier, "later": later}


def _session(conf: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.driver.memory", "3g")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        f"{STATE}maintenanceInterval": "1s",
        f"{STATE}minDeltasForSnapshot": "1",
    }
    for name, value in {**settings, **conf}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _start(spark: SparkSession, source: Path, checkpoint: Path) -> StreamingQuery:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    named = rows.withColumn("key", F.format_string("customer-%09d", "id"))
    counts = named.groupBy("key").agg(
        F.count("*").alias("count"), F.sum("amount").alias("sum"), F.max("at").alias("last")
    )
    writer = counts.writeStream.format("noop").outputMode("update")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def _deliver(ids: DataFrame, source: Path, number: int) -> None:
    """Give the query one file, all at once."""
    rows = ids.selectExpr(
        "id", "id % 1000 as amount", f"timestamp_seconds(1700000000 + id % 86400 + {number} * 86400) as at"
    )
    written = source.parent / f"batch-{number}"
    rows.coalesce(1).write.parquet(str(written))
    (file,) = written.glob("*.parquet")
    file.rename(source / f"{number}.parquet")


def _snapshots(checkpoint: Path) -> int:
    return len([*checkpoint.glob("state/0/*/*.zip"), *checkpoint.glob("state/0/*/*.snapshot")])


def _wait(query: StreamingQuery, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not ready():
        if query.exception() is not None or time.monotonic() > until:
            raise RuntimeError(f"the query does not get on: {query.exception()}")
        time.sleep(0.2)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
