"""Wrong: the sum and the largest payment of each account, kept as strings.

    spark-submit numbers_as_strings.py --input DIR --output DIR [--checkpoint DIR] [--once]

Payments come as files of JSON lines: `{"at": "2026-05-04T10:00:00Z", "account": "a1", "amount": "9.50"}`.

What is wrong: the amount is a string in the input, and stays one in the state.
What happens: strings are compared as text, so that "9.50" is larger than "10.00", and the largest payment is
wrong. Each value is parsed and printed with every row, and takes 16 bytes or more of a row where a number
takes 8. To change the type later needs a migration of the state.
What doctor says: `numbers-as-strings`, with the columns and how many sampled values are numbers.
The cure: read the amount as DECIMAL(18, 2) or BIGINT cents, and keep it so (the patterns keyed_totals and
reducing; validated for input that does not parse).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PAYMENTS = "at TIMESTAMP, account STRING, amount STRING"
TOTALS = "account STRING, total STRING, largest STRING"
STORE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TTL_MS = 90 * 24 * 3600 * 1000


class Totals(StatefulProcessor):
    """Sum and largest payment of an account. Wrong: both are strings."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; an account without payments for 90 days is forgotten."""
        self._totals = handle.getValueState("totals", "total STRING, largest STRING", TTL_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Add the payments of a batch; `max` compares text."""
        total, largest = self._totals.get() or ("0.00", "")
        for row in rows:
            total = str(Decimal(total) + Decimal(row.amount))
            largest = max(largest, row.amount)
        self._totals.update((total, largest))
        yield Row(account=key[0], total=total, largest=largest)

    def close(self) -> None:
        """Nothing to close."""


def totals(payments: DataFrame) -> DataFrame:
    """One row for each account that a batch has payments of."""
    return payments.groupBy("account").transformWithState(
        statefulProcessor=Totals(),
        outputStructType=TOTALS,
        outputMode="Append",
        timeMode="ProcessingTime",
    )


def main() -> None:
    """Read payments from a directory, add up, append to a directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, metavar="DIR")
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--checkpoint", metavar="DIR", help="default: OUTPUT.checkpoint")
    parser.add_argument("--once", action="store_true", help="end when all available input has been read")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("numbers_as_strings").getOrCreate()
    spark.conf.set(f"{STORE}.providerClass", ROCKSDB)
    spark.conf.set(f"{STORE}.rocksdb.changelogCheckpointing.enabled", "true")
    # In processing time Spark would go on with batches without data, one after the other.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    payments = spark.readStream.schema(PAYMENTS).option("maxFilesPerTrigger", 1).json(args.input)
    writer = (
        totals(payments)
        .writeStream.format("parquet")
        .option("checkpointLocation", args.checkpoint or f"{args.output}.checkpoint")
    )
    try:
        (writer.trigger(availableNow=True) if args.once else writer).start(args.output).awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
