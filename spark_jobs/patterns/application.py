"""What every pattern has around its query: arguments, a session, JSON in, JSON out.

A pattern is an ordinary Structured Streaming application. It runs alone (`spark-submit PATTERN.py --input DIR
--output DIR`) and, unchanged, as a job of Streambank, which then replaces the checkpoint location by the one
of the job's current generation. `events.py` makes input for all of them.

This module runs in the driver only. What runs in Spark's Python workers, such as a `StatefulProcessor`,
stands in the pattern's own file, or in a module that is shipped with `ship`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the arguments that every pattern takes; a pattern adds those that only it has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--input", required=True, metavar="DIR", help="JSON files, as `events.py` writes them"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="where the rows go, as JSON files")
    parser.add_argument("--checkpoint", metavar="DIR", help="default: OUTPUT.checkpoint")
    parser.add_argument("--once", action="store_true", help="read what there is, batch by batch, and end")
    parser.add_argument("--files-per-trigger", type=int, default=1, metavar="N")
    parser.add_argument("--trigger", default="1 second", help="the time between two batches")
    return parser


def session(name: str) -> SparkSession:
    """A session whose queries keep their state in RocksDB, which `transformWithState` needs."""
    spark = SparkSession.builder.appName(name).getOrCreate()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def ship(module: ModuleType) -> None:
    """Send a module beside the application to Spark's workers inside whatever uses it.

    A worker cannot import it: the folder of the application is on the driver's path alone. `addPyFile` does
    not help here, since the worker of a streaming query of Spark 4.3 does not see what it added.
    """
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # vendored, untyped


def events(spark: SparkSession, args: argparse.Namespace, schema: str, folder: str = "") -> DataFrame:
    """The stream of events below `--input` (in `folder` there, if there are several kinds)."""
    return (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", args.files_per_trigger)
        .json(str(Path(args.input, folder)))
    )


def append(rows: DataFrame, args: argparse.Namespace, name: str) -> None:
    """Append each row once to the files of `--output`, until the query ends."""
    _run(rows.writeStream.outputMode("append").format("json").option("path", args.output), args, name)


def replace_batches(rows: DataFrame, args: argparse.Namespace, name: str, mode: str = "update") -> None:
    """Write each batch to `OUTPUT/batch=N`, and replace that folder if Spark runs the batch again.

    That makes `foreachBatch` exactly-once: a batch that runs again has the same input and the same state.
    """

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").json(f"{args.output}/batch={number}")

    each_batch(rows, args, name, write, mode)


def each_batch(
    rows: DataFrame,
    args: argparse.Namespace,
    name: str,
    write: Callable[[DataFrame, int], None],
    mode: str = "update",
) -> None:
    """Hand each batch and its number to a function, until the query ends."""
    _run(rows.writeStream.outputMode(mode).foreachBatch(write), args, name)


def _run(writer: DataStreamWriter, args: argparse.Namespace, name: str) -> None:
    writer = writer.queryName(name).option(
        "checkpointLocation", args.checkpoint or f"{args.output}.checkpoint"
    )
    writer = writer.trigger(availableNow=True) if args.once else writer.trigger(processingTime=args.trigger)
    query = writer.start()
    while not query.awaitTermination(1):
        if args.once and _idle(query):
            query.stop()


def _idle(query: StreamingQuery) -> bool:
    """Whether the two newest batches had no input.

    With `availableNow` a query ends by itself, except one with `timeMode="ProcessingTime"`: Spark 4.3 runs
    batches without input for it for ever, since a timer or a time to live may expire.
    """
    newest = query.recentProgress[-2:]
    return len(newest) == 2 and not any(one.numInputRows for one in newest)
