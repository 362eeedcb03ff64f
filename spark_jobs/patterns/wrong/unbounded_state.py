"""Wrong: orders without repeats, by a state that keeps the id of every order for ever.

    spark-submit unbounded_state.py --input DIR --output DIR [--checkpoint DIR] [--once]

Orders come as files of JSON lines: `{"at": "2026-05-04T10:00:00Z", "order_id": "o-1", "amount": 9.5}`.

What is wrong: `dropDuplicates` by the id alone. Neither a watermark nor a timeout lets Spark remove an id.
The same holds for `groupBy("customer")`, for `applyInPandasWithState` without a timeout, and for a join
without a bound on event time.
What happens: one row of state for each order ever. Batches get slower, each start takes longer, and in the
end an executor has no memory left. With few orders, as in a test, nothing shows.
What doctor says: `unbounded-state`, a warning once the state has grown without losing a row.
The cure: `dropDuplicatesWithinWatermark` (the pattern dedup_within), event time among the columns
(dedup_watermark), or a time to live (dedup_ttl).
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

ORDERS = "at TIMESTAMP, order_id STRING, amount DOUBLE"


def without_repeats(orders: DataFrame) -> DataFrame:
    """Each order once. Wrong: the watermark is missing, and every id stays in the state."""
    return orders.dropDuplicates(["order_id"])


def main() -> None:
    """Read orders from a directory, drop repeats, append to a directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, metavar="DIR")
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--checkpoint", metavar="DIR", help="default: OUTPUT.checkpoint")
    parser.add_argument("--once", action="store_true", help="end when all available input has been read")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("unbounded_state").getOrCreate()
    orders = spark.readStream.schema(ORDERS).option("maxFilesPerTrigger", 1).json(args.input)
    writer = (
        without_repeats(orders)
        .writeStream.format("parquet")
        .option("checkpointLocation", args.checkpoint or f"{args.output}.checkpoint")
    )
    try:
        (writer.trigger(availableNow=True) if args.once else writer).start(args.output).awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
