"""The query of `bench.upgrade` for Spark: counts the lines of files per line, as CountPerKey.java does.

spark-submit count_per_key.py FOLDER
"""

from __future__ import annotations

import sys

VERSION = 1


def main(folder: str) -> None:
    """Count until the query is stopped."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.Builder().getOrCreate()
    counts = spark.readStream.text(folder).groupBy("value").agg(F.count("*").alias("count"))
    versioned = counts.withColumn("version", F.lit(VERSION))
    versioned.writeStream.format("noop").outputMode("update").start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
