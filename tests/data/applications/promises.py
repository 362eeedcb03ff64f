"""Queries that keep or break what is promised of them, each in its own way; all run until they are stopped.

* `steady`: counts in windows that a watermark closes.
* `leak`: drops duplicates without a watermark, so it forgets nothing.
* `heavy`: many keys that all hash to one partition, in RocksDB without changelog.
* `behind`: event times of an hour ago, some rows much too late, and snapshots that are never due.
* `slow`: each batch takes seconds, has five states to commit, and the next begins at once.
* `failing`: fails after some batches.
"""

import argparse
import time

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

parser = argparse.ArgumentParser()
parser.add_argument("--trigger-s", type=int, default=5)
args = parser.parse_args()

STORE = "spark.sql.streaming.stateStore."
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = 8
NOW_MS = int(time.time() * 1000)

spark = SparkSession.builder.appName("promises").getOrCreate()


def rows(count: int, begin_ms: int = NOW_MS) -> DataFrame:
    """So many rows a batch; their event times go as fast as the clock."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", count)
        .option("numPartitions", 1)
        .option("startTimestamp", begin_ms)
        .option("advanceMillisPerBatch", args.trigger_s * 1000)
        .load()
    )


def windows(stream: DataFrame, at: Column) -> DataFrame:
    counted = stream.withColumn("at", at).withWatermark("at", "5 seconds")
    return counted.groupBy(f.window("at", "10 seconds"), (f.col("value") % 20).alias("key")).count()


def start(name: str, stream: DataFrame, provider: str, *, pause: bool = True, **settings: str) -> None:
    """Start a query with its own settings: it copies them when it starts."""
    spark.conf.set(f"{STORE}providerClass", provider)
    spark.conf.set(f"{STORE}minDeltasForSnapshot", settings.get("deltas", "3"))
    spark.conf.set(f"{STORE}rocksdb.changelogCheckpointing.enabled", settings.get("changelog", "false"))
    spark.conf.set("spark.sql.shuffle.partitions", settings.get("partitions", "2"))
    writer = stream.writeStream.queryName(name).format("noop").outputMode("update")
    writer.trigger(processingTime=f"{args.trigger_s if pause else 0} seconds").start()


def sleep(value: int) -> int:
    time.sleep(6.0)
    return value


@f.udf("long")
def failing(value: int) -> int:
    if value >= 4:
        raise ValueError("a row that cannot be understood")
    return value


slowly = f.udf(sleep, "long").asNondeterministic()  # so that it is called once for a row
late = f.when(f.col("value") % 10 == 0, f.expr("timestamp - INTERVAL 20 MINUTES")).otherwise(
    f.col("timestamp")
)
one_partition = f.expr(f"pmod(hash(value), {PARTITIONS}) = 0")
start("steady", windows(rows(200), f.col("timestamp")), HDFS)
start("leak", rows(300).dropDuplicates(["value"]), HDFS)
start(
    "heavy", rows(60_000).where(one_partition).groupBy("value").count(), ROCKSDB, partitions=str(PARTITIONS)
)
start("behind", windows(rows(200, NOW_MS - 3_600_000), late), ROCKSDB, changelog="true", deltas="1000")
slow = rows(1).withColumn("value", slowly("value"))
for number in range(5):  # each is a stateful operator, whose state is committed after that of the one before
    slow = slow.withColumn(f"key{number}", f.col("value") + number).dropDuplicates([f"key{number}"])
start("slow", slow, ROCKSDB, pause=False, partitions="1")
start("failing", rows(1).withColumn("value", failing("value")), HDFS)
running = {query.name: query for query in spark.streams.active}
running["steady"].awaitTermination()
