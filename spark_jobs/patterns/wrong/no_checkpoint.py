"""Wrong: amounts by shop and hour, without a checkpoint location.

    spark-submit no_checkpoint.py --input DIR --output DIR [--once]

Sales come as files of JSON lines: `{"at": "2026-05-04T10:00:00Z", "shop": "s1", "amount": 9.5}`.

What is wrong: no `checkpointLocation`. File and Kafka sinks refuse that; `foreachBatch`, console and memory
do not: Spark makes a directory `temporary-UUID` below the machine's temporary files, and deletes it when
the query ends well.
What happens: each start begins with nothing. All input is read again, sums begin at zero, and batches that
were written are written once more. On another machine the directory of a killed driver is not even there.
What doctor says: `no-checkpoint-location`. `streambank doctor` without a checkpoint looks for such
directories on its machine. Under Streambank the location is the job's, whatever the application says, so
that doctor has nothing to say of the job: the application is wrong only outside of it.
The cure: `.option("checkpointLocation", ...)` on storage that stays; run the application as a job.
"""

from __future__ import annotations

import argparse
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SALES = "at TIMESTAMP, shop STRING, amount DOUBLE"


def by_hour(sales: DataFrame) -> DataFrame:
    """One row for each hour and shop, when the hour is over."""
    return (
        sales.withWatermark("at", "10 minutes")
        .groupBy(F.window("at", "1 hour"), "shop")
        .agg(F.sum("amount").alias("amount"))
        .select(F.col("window.start").alias("hour"), "shop", "amount")
    )


def write(output: str, rows: DataFrame, batch_id: int) -> None:
    """Write a batch to a directory with its number; the next run begins at 0 and overwrites it."""
    rows.write.mode("overwrite").json(f"{output}/batch={batch_id}")


def main() -> None:
    """Read sales from a directory, add up, write each batch. Wrong: no checkpointLocation is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, metavar="DIR")
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--once", action="store_true", help="end when all available input has been read")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("no_checkpoint").getOrCreate()
    sales = spark.readStream.schema(SALES).option("maxFilesPerTrigger", 1).json(args.input)
    writer = by_hour(sales).writeStream.foreachBatch(partial(write, args.output))
    try:
        (writer.trigger(availableNow=True) if args.once else writer).start().awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
