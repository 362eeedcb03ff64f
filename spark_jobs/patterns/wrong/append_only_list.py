"""Wrong: the mean of each sensor's last ten readings, from a list that keeps all readings.

    spark-submit append_only_list.py --input DIR --output DIR [--checkpoint DIR] [--once]

Readings come as files of JSON lines: `{"at": "2026-05-04T10:00:00Z", "sensor": "s1", "value": 20.5}`.

What is wrong: a ListState to which readings are appended, and from which none is ever taken.
What happens: each batch reads the whole list of a sensor to use its end. State and batches grow with the age
of the query, while the number of keys, which people watch, stays the same.
What doctor says: `append-only-list`, with how many elements were added and how many were taken away; and
`unbounded-state`, since neither a timer nor a time to live bounds the list.
The cure: put back the part that is needed (`put(list[-10:])`, the pattern rolling_average), keep a sum and a
count instead of the rows (reducing), or give the list a time to live (state_variables).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

READINGS = "at TIMESTAMP, sensor STRING, value DOUBLE"
MEANS = "sensor STRING, at TIMESTAMP, mean DOUBLE"
STORE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LAST = 10


class RollingMean(StatefulProcessor):
    """The mean of the last readings of a sensor. Wrong: the list only grows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the list; nothing says how long its elements are kept."""
        self._readings = handle.getListState("readings", READINGS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Append what came, and read all that ever came."""
        self._readings.appendList([(row.at, row.sensor, row.value) for row in rows])
        last = sorted(self._readings.get())[-LAST:]
        yield Row(sensor=key[0], at=last[-1][0], mean=sum(one[2] for one in last) / len(last))

    def close(self) -> None:
        """Nothing to close."""


def means(readings: DataFrame) -> DataFrame:
    """One row for each sensor that a batch has readings of."""
    return readings.groupBy("sensor").transformWithState(
        statefulProcessor=RollingMean(), outputStructType=MEANS, outputMode="Append", timeMode="None"
    )


def main() -> None:
    """Read readings from a directory, follow each sensor, append to a directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, metavar="DIR")
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--checkpoint", metavar="DIR", help="default: OUTPUT.checkpoint")
    parser.add_argument("--once", action="store_true", help="end when all available input has been read")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("append_only_list").getOrCreate()
    spark.conf.set(f"{STORE}.providerClass", ROCKSDB)
    spark.conf.set(f"{STORE}.rocksdb.changelogCheckpointing.enabled", "true")
    readings = spark.readStream.schema(READINGS).option("maxFilesPerTrigger", 1).json(args.input)
    writer = (
        means(readings)
        .writeStream.format("parquet")
        .option("checkpointLocation", args.checkpoint or f"{args.output}.checkpoint")
    )
    try:
        (writer.trigger(availableNow=True) if args.once else writer).start(args.output).awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
