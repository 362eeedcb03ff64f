"""Words of text files, counted by window of their time, into a file sink: counts.py FOLDER."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import window

folder = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
words = (
    spark.readStream.schema("at TIMESTAMP, word STRING")
    .option("maxFilesPerTrigger", 1)
    .json(str(folder / "input"))
    .withWatermark("at", "10 minutes")
    .groupBy(window("at", "5 minutes"), "word")
    .count()
)
query = words.writeStream.format("parquet").option("path", str(folder / "output"))
query.trigger(processingTime="200 milliseconds").start().awaitTermination()
