"""Orders, each once: JSON files of a folder, without those that were seen before, into JSON files.

orders.py INPUT OUTPUT: a row without an amount is poison. It fails the batch that reads it, again and again.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

source, output = sys.argv[1:]
spark = SparkSession.builder.appName("orders").getOrCreate()
orders = (
    spark.readStream.schema("id LONG, amount LONG")
    .option("maxFilesPerTrigger", 1)
    .json(source)
    .withColumn("amount", expr("if(amount is null, raise_error('poison row'), amount)"))
    .dropDuplicates(["id"])
)
(
    orders.writeStream.format("json")
    .option("path", output)
    .trigger(processingTime="500 milliseconds")
    .start()
    .awaitTermination()
)
