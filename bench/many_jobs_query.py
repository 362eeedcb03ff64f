"""One of the queries of bench/many_jobs.py: a count for each of a thousand keys, a batch every few seconds.

many_jobs_query.py EVERY
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(every: str) -> None:
    """Run it until somebody stops it."""
    spark = SparkSession.builder.appName("many-jobs").getOrCreate()
    source = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    counted = source.selectExpr("value % 1000 AS key").groupBy("key").count()
    writer = counted.writeStream.outputMode("update").format("noop").trigger(processingTime=every)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
