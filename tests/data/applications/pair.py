"""Two queries by name, one of them slow; awaits any, and ends its session in a `finally`."""

import argparse
import time

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--fail-at", type=int, default=-1, help="the quick query fails at this value")
args = parser.parse_args()


def slowly(value: int) -> int:
    time.sleep(3)
    return value


def quickly(value: int) -> int:
    if value == args.fail_at:
        raise ValueError("a row that cannot be understood")
    return value


spark = SparkSession.builder.appName("pair").getOrCreate()
try:
    for name, function in (("quick", quickly), ("Slow Zähler", slowly)):
        rows = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 1)
            .option("numPartitions", 1)
            .load()
        )
        writer = rows.withColumn("value", udf(function, "long")("value")).writeStream.format("parquet")
        writer.queryName(name).trigger(processingTime="1 second").option("checkpointLocation", "/nowhere")
        writer.start(f"{args.folder}/{function.__name__}")
    spark.streams.awaitAnyTermination()
except Exception as error:
    # Many applications log a failure and end as if nothing had been.
    print(f"swallowed {type(error).__name__}", flush=True)
finally:
    spark.stop()
