"""Starts queries whose sink, operators or checkpoint are not what they were, and prints how each was refused.

Its arguments are a folder with input, one for output, and the checkpoint of its query `raw`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

inputs, outputs, checkpoint = (Path(arg) for arg in sys.argv[1:])
codes: dict[str, Any] = {}
called: list[int] = []


def attempt(what: str, function: Callable[[], Any]) -> None:
    try:
        function().awaitTermination()
        codes[what] = "accepted"
    except Exception as error:
        codes[what] = getattr(error, "code", repr(error))


def start(frame: DataFrame, name: str, path: str, own: str = "/own/raw") -> Any:
    writer = frame.writeStream.queryName(name).option("checkpointLocation", own)
    return writer.format("text").trigger(availableNow=True).start(path)


def for_each(frame: DataFrame, name: str) -> Any:
    writer = frame.writeStream.queryName(name).option("checkpointLocation", "/own/raw")
    return writer.foreachBatch(lambda rows, batch: called.append(batch)).trigger(availableNow=True).start()


spark = SparkSession.builder.getOrCreate()
lines = spark.readStream.format("text").load(str(inputs))

attempt("moved to another path", lambda: start(lines, "moved", f"{outputs}/new"))
attempt("moved to another kind", lambda: for_each(lines, "moved"))
attempt("begun in a used output", lambda: start(lines, "raw", f"{outputs}/used"))

attempt("first", lambda: start(lines, "raw", f"{outputs}/raw"))
attempt("another kind", lambda: for_each(lines, "raw"))
attempt("another path", lambda: start(lines, "raw", f"{outputs}/new"))
attempt("with state", lambda: start(lines.dropDuplicates(), "raw", f"{outputs}/raw"))
attempt("another checkpoint", lambda: start(lines, "raw", f"{outputs}/raw", "/own/counts"))
attempt("spelled differently", lambda: start(lines, "raw", f"file:{outputs}/./raw/"))

checkpoint.rename(f"{checkpoint}.away")
attempt("its checkpoint is gone", lambda: start(lines, "raw", f"{outputs}/raw"))
codes["begun again"] = checkpoint.exists()
Path(f"{checkpoint}.away").rename(checkpoint)

marker = Path(f"{checkpoint}.streambank.json")
known = marker.read_text()
marker.write_text(json.dumps({**json.loads(known), "generation": 5}))
attempt("its records are older than it", lambda: start(lines, "raw", f"{outputs}/raw"))
marker.write_text(known)
attempt("restored to write elsewhere", lambda: start(lines, "left", f"{outputs}/left", "/own/left"))
codes["called"] = called
print(json.dumps(codes), flush=True)
start(lines, "raw", f"{outputs}/new")
