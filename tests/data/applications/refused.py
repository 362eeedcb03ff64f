"""Asks for everything that the runner refuses, and prints the code of each refusal.

Its argument is the output directory from which a restore took the query away.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.streaming import StreamingContext

codes: dict[str, Any] = {}


def attempt(what: str, function: Callable[[], Any]) -> None:
    try:
        function()
        codes[what] = "accepted"
    except Exception as error:
        codes[what] = getattr(error, "code", repr(error))


def rows() -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()


def dstreams() -> StreamingContext:
    return StreamingContext(spark.sparkContext, 1)


attempt("connect", lambda: SparkSession.builder.remote("sc://localhost").getOrCreate())
attempt("connect create", lambda: SparkSession.builder.config("spark.remote", "sc://localhost").create())
spark = SparkSession.builder.getOrCreate()
attempt("dstream", dstreams)
attempt("dstream of a checkpoint", lambda: StreamingContext.getOrCreate("/nowhere", dstreams))
attempt("continuous", lambda: rows().writeStream.format("console").trigger(continuous="1 second").start())
real_time: dict[str, Any] = {"realTime": "1 minute"}
attempt("real time", lambda: rows().writeStream.format("console").trigger(**real_time).start())
attempt("async", lambda: rows().writeStream.option("asyncProgressTrackingEnabled", "true"))
attempt("async in start", lambda: rows().writeStream.start("/nowhere", asyncProgressTrackingEnabled=True))

old = sys.argv[1]
attempt("old output", lambda: rows().writeStream.start(old))
attempt("old output by option", lambda: rows().writeStream.option("path", f"file:{old}/").start())
attempt("old output by options", lambda: rows().writeStream.options(PATH=old).start())
attempt("old output in start", lambda: rows().writeStream.start(PATH=f"{old}/x/.."))

writer = rows().writeStream.format("noop").trigger(processingTime="1 hour")
query = writer.start()
attempt("second query", lambda: rows().writeStream.format("noop").start())
while query.lastProgress is None:
    time.sleep(0.1)
query.stop()
attempt("another name", lambda: rows().writeStream.format("noop").queryName("other").start())
other = spark.readStream.format("rate").load().writeStream.format("noop")
attempt("another source", lambda: other.start())
attempt("the same again", lambda: codes.update(again=rows().writeStream.format("noop").start().isActive))
for active in spark.streams.active:
    active.stop()
print(json.dumps(codes))
sys.exit(7)
