"""Batches that take as long as they are told, into a file sink, with a checkpoint written into the code.

Prints what it sees of itself, and ends its session like many applications do: in a `finally`.
"""

import argparse
import json
import os
import sys
import time

import steady_helper  # type: ignore[import-not-found]  # found beside it when it runs
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--batch-s", type=float, default=0.0)
parser.add_argument("--slow-from", type=int, default=0, help="the first value that takes long")
parser.add_argument("--trigger", default="0 seconds")
args = parser.parse_args()


def slowly(value: int) -> int:
    if value >= args.slow_from:
        time.sleep(args.batch_s)
    return value


spark = SparkSession.builder.appName("steady").getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
if args.batch_s:
    rows = rows.withColumn("value", udf(slowly, "long")("value"))
print(
    json.dumps(
        {
            "argv": sys.argv,
            "main": __name__,
            "file": __file__,
            "helper": steady_helper.HERE,
            "path": sys.path[0],
            "environment": sorted(os.environ),
        }
    ),
    flush=True,
)
query = (
    rows.writeStream.format("parquet")
    .option("checkpointLocation", f"{args.folder}/own-checkpoint")
    .trigger(processingTime=args.trigger)
    .start("relative-output", CHECKPOINTLOCATION=f"{args.folder}/own-checkpoint-too")
)
try:
    query.awaitTermination()
finally:
    spark.stop()
print("the application has ended in good order", flush=True)
