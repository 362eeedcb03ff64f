"""Keys that are found hot are split while the query runs, by a table that each batch reads.

    spark-submit hot_keys_found.py --input DIR --output DIR [--hot DIR] [--hot-above 20] [--parts 8]

Which key is hot is often known only when it is. Here the query's own answer says so: a card with more than
`--hot-above` payments in a window is written to the table of hot cards, `--hot` (default: OUTPUT.hot), and
from the next batch on its payments are split into `--parts` keys. Any program may add rows to that table:
JSON lines `{"card": "card-7", "parts": 8}`; a card that is there twice has the larger number.

The answer never depends on the table, because the sum of partial sums is the same however the payments were
split: in this batch otherwise than in the last, or in a batch that runs again after a row was added. `parts`
says into how many keys a window of a card was split. That holds for sums, counts and extremes, not for counts
of different things: a shop of a card would be counted once in each part (see the salt of `salted.py`).

A join with `spark.read.json(DIR)` does *not* work: Spark lists the folder once, when the query starts, and
later batches never see a new file. A Python data source (`HotCards` below) is read again by every batch,
since Spark plans each batch by itself. A Delta table is read again by every batch too, and needs no such
class.

State: partial sums by window, card and part, and their totals; both go when the watermark passes the window.
The table grows by a row for each hot card and window; files may be removed at any time. In Flink: a broadcast
stream joined by `KeyedBroadcastProcessFunction` before the `keyBy`, and the same two windows.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import application
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"


class HotCards(DataSource):
    """The table of hot cards: JSON lines below the option `path`, one row a card."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "hot_cards"

    def schema(self) -> str:
        """The columns of the table."""
        return "card STRING, parts INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Made for each batch."""
        return _Reader(self.options["path"])


class _Reader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, partition: Any) -> Iterator[tuple[str, int]]:
        parts: dict[str, int] = {}
        folder = Path(self.path)
        for file in [*folder.glob("*.json"), *folder.glob("batch=*/*.json")]:
            for row in map(json.loads, file.read_text().splitlines()):
                parts[row["card"]] = max(row["parts"], parts.get(row["card"], 1))
        yield from parts.items()


def totals(payments: DataFrame, hot: DataFrame, length: str, watermark: str) -> DataFrame:
    """The totals of each window and card, summed from the parts of those that are hot."""
    split = F.pmod(F.xxhash64("payment"), F.coalesce("parts", F.lit(1)))
    partial = (
        payments.withWatermark("event_time", watermark)
        .join(F.broadcast(hot), "card", "left")
        .groupBy(F.window("event_time", length), "card", split.alias("part"))
        .agg(F.count("*").alias("payments"), F.sum("cents").alias("cents"))
    )
    return partial.groupBy("window", "card").agg(
        F.sum("payments").alias("payments"), F.sum("cents").alias("cents"), F.count("*").alias("parts")
    )


def run(rows: DataFrame, hot: str, args: Namespace) -> None:
    """Write the totals of each batch, and the cards among them that are hot."""

    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        batch.write.mode("overwrite").json(f"{args.output}/batch={number}")
        found = batch.where(F.col("payments") > args.hot_above).select("card").distinct()
        found.withColumn("parts", F.lit(args.parts)).write.mode("overwrite").json(f"{hot}/batch={number}")
        batch.unpersist()

    application.each_batch(rows, args, "hot_keys_found", write, "append")


def main() -> None:
    """Read payments and the table of hot cards, write the totals of windows that have closed."""
    parser = application.arguments(__doc__)
    parser.add_argument("--hot", metavar="DIR", help="the table of hot cards; default: OUTPUT.hot")
    parser.add_argument("--hot-above", type=int, default=20, metavar="N", help="payments in a window")
    parser.add_argument("--parts", type=int, default=8, metavar="N", help="of a card that is found hot")
    parser.add_argument("--minutes", type=int, default=5, metavar="M", help="the length of a window")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    hot = str(Path(args.hot or f"{args.output}.hot").resolve())
    spark = application.session("hot_keys_found")
    spark.dataSource.register(HotCards)
    table = spark.read.format("hot_cards").load(hot)
    payments = application.events(spark, args, PAYMENTS)
    rows = totals(payments, table, f"{args.minutes} minutes", args.watermark)
    run(rows.select(F.col("window.start").alias("start"), "card", "payments", "cents", "parts"), hot, args)


if __name__ == "__main__":
    main()
