"""Wrong: returning customers, grouped by merchant, where one merchant has most of the customers.

    spark-submit hot_keys.py --input DIR --output DIR [--checkpoint DIR] [--once]

Payments come as files of JSON lines:
`{"at": "2026-05-04T10:00:00Z", "merchant": "m1", "customer": "c1", "amount": 9.5}`.

What is wrong: the grouping key is the merchant, though nothing here needs two customers together. All rows of
a key go to one task, and its state to one partition.
What happens: one task works while the others wait; more executors do not help. Sums of Spark's progress do
not show it, since they are sums.
What doctor says: `hot-key`, with the share of the written rows that belong to one key; `uneven-state` once
the snapshots show it, too.
The cure: a finer key, here `groupBy("merchant", "customer")`; a salt (the pattern salted); or another key for
the few large ones alone (split_key).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PAYMENTS = "at TIMESTAMP, merchant STRING, customer STRING, amount DOUBLE"
VISITS = "merchant STRING, customer STRING, at TIMESTAMP, visit INT"
STORE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TTL_MS = 90 * 24 * 3600 * 1000


class Visits(StatefulProcessor):
    """Numbers the visits of each customer of one merchant."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the map; a customer who stays away for 90 days is forgotten."""
        self._visits = handle.getMapState("visits", "customer STRING", "visits INT", TTL_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Return a row for each payment. Wrong: for the largest merchant one task does this alone."""
        for row in rows:
            customer = (row.customer,)
            (before,) = self._visits.getValue(customer) or (0,)
            visit = before + 1
            self._visits.updateValue(customer, (visit,))
            yield Row(merchant=row.merchant, customer=row.customer, at=row.at, visit=visit)

    def close(self) -> None:
        """Nothing to close."""


def visits(payments: DataFrame) -> DataFrame:
    """One row for each payment, with the number of the customer's visit. Wrong: by merchant alone."""
    return payments.groupBy("merchant").transformWithState(
        statefulProcessor=Visits(),
        outputStructType=VISITS,
        outputMode="Append",
        timeMode="ProcessingTime",
    )


def main() -> None:
    """Read payments from a directory, number the visits, append to a directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, metavar="DIR")
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--checkpoint", metavar="DIR", help="default: OUTPUT.checkpoint")
    parser.add_argument("--once", action="store_true", help="end when all available input has been read")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("hot_keys").getOrCreate()
    spark.conf.set(f"{STORE}.providerClass", ROCKSDB)
    spark.conf.set(f"{STORE}.rocksdb.changelogCheckpointing.enabled", "true")
    # In processing time Spark would go on with batches without data, one after the other.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    payments = spark.readStream.schema(PAYMENTS).option("maxFilesPerTrigger", 1).json(args.input)
    writer = (
        visits(payments)
        .writeStream.format("parquet")
        .option("checkpointLocation", args.checkpoint or f"{args.output}.checkpoint")
    )
    try:
        (writer.trigger(availableNow=True) if args.once else writer).start(args.output).awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
