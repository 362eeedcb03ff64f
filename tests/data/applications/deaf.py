"""A batch that hears nothing: Python code in `foreachBatch`, which neither a stop nor an interrupt ends."""

import time

from pyspark.sql import DataFrame, SparkSession


def forever(_rows: DataFrame, _batch: int) -> None:
    print("in a batch", flush=True)
    while True:
        time.sleep(1)


spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
rows.writeStream.foreachBatch(forever).start().awaitTermination()
