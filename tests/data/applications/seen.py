"""Numbers that were not seen before, from text files to a file sink: state that grows with every number.

seen.py FOLDER: reads `in/`, a file a batch, and writes `out/`.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

folder = Path(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder / "in"))
numbers = lines.selectExpr("cast(value AS int) AS number").dropDuplicates(["number"])
query = numbers.writeStream.format("json").option("path", str(folder / "out"))
query.trigger(processingTime="500 milliseconds").start().awaitTermination()
