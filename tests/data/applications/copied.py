"""Starts queries with all kinds of sinks, whose launch redirects them, and prints how each went.

Its arguments are a folder with input and one for output.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, length

inputs, outputs = (Path(arg) for arg in sys.argv[1:])
codes: dict[str, Any] = {}
called: list[int] = []


def attempt(what: str, function: Callable[[], Any]) -> None:
    try:
        function().awaitTermination()
        codes[what] = "accepted"
    except Exception as error:
        codes[what] = getattr(error, "code", repr(error))


def lines(**options: str) -> DataFrame:
    """The input, from a reader that would delete what it has read."""
    reader = spark.readStream.format("text").option("cleanSource", "delete").options(**options)
    return reader.load(str(inputs)).withColumn("size", length("value"))


def writer(frame: DataFrame, name: str) -> Any:
    return frame.writeStream.queryName(name).option("checkpointLocation", "/own").trigger(availableNow=True)


spark = SparkSession.builder.getOrCreate()

files = writer(lines(), "files").format("json").partitionBy("size")
attempt("files", lambda: files.start(str(outputs / "files")))
(inputs / "1.txt").write_text("eight\n")  # Spark cleans up after a batch when the next one is planned
attempt("the same writer", lambda: files.start(str(outputs / "files")))
attempt(
    "path as an option",
    lambda: writer(lines(), "option").format("csv").option("path", f"{outputs}/option").start(),
)
attempt(
    "everything at the start",
    lambda: writer(lines(), "start").start(f"{outputs}/start", "parquet", "append", ["size"], header="true"),
)
spark.sql(f"CREATE TABLE existing (value STRING, size INT) USING parquet LOCATION '{outputs}/existing'")
attempt("a table that is there", lambda: writer(lines(), "existing").toTable("existing"))
attempt("a table to make", lambda: writer(lines(), "made").partitionBy("size").toTable("made"))
attempt("another table", lambda: writer(lines(), "renamed").toTable("existing"))
counts = lines().groupBy("size").count()
attempt(
    "a sink by its format, in update mode",
    lambda: (
        writer(counts.select(col("size").cast("string").alias("value")), "kafka")
        .format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("topic", "t")
        .start()
    ),
)
attempt("nothing kept", lambda: writer(lines(), "noop").format("noop").start())
attempt(
    "a function",
    lambda: writer(lines(), "function").foreachBatch(lambda rows, batch: called.append(batch)).start(),
)
spark.sql(f"CREATE TABLE source (value STRING) USING text OPTIONS (cleanSource 'delete') LOCATION '{inputs}'")
attempt(
    "a source that its table cleans",
    lambda: writer(spark.readStream.table("source"), "cleaning").format("json").start(f"{outputs}/cleaning"),
)
codes["called"] = called
codes["tables"] = sorted(one.name for one in spark.catalog.listTables())
print(json.dumps(codes), flush=True)
