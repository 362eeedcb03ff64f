"""Hot keys: salt the key, aggregate in two steps.

    spark-submit salted.py --input DIR --output DIR [--salts 8] [--minutes 5] [--wrong]

Few merchants take many payments. To count the different cards of each merchant and window exactly, Spark must
keep every card of a window; with one row of state for each merchant, a busy merchant is one huge set, grown
by one task. The *salt* is a number from 0 to `--salts` - 1 that is made of the card. The first step groups by
merchant and salt, so a busy merchant is eight smaller sets on different tasks; the second step adds up, and
gets at most eight rows for each merchant and window.

The salt comes from the card and not from a random number for two reasons. A card always has the same salt, so
the sets of a merchant do not overlap and their sizes may be added. And a batch that runs again puts each row
where it was. Sums, counts and extremes may be salted by any column; a mean needs its sum and its count.

The state is a set of cards for each window, merchant and salt, and one row of sums behind it; both go when
the watermark passes the window. Trap: `--wrong` forgets the second step, which gives up to eight rows that
each claim the whole merchant. Another: a plain `sum` or `count` needs no salt at all, because Spark folds the
rows of a key in each task before the shuffle. In Flink: `keyBy(key, salt)`, a window, `keyBy(key)` and a
second window; the SQL planner does it by `table.optimizer.distinct-agg.split.enabled`.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"


def first_step(payments: DataFrame, salts: int, length: str, watermark: str) -> DataFrame:
    """The totals of each window, merchant and salt."""
    return (
        payments.withWatermark("event_time", watermark)
        .withColumn("salt", F.pmod(F.xxhash64("card"), F.lit(salts)))
        .groupBy(F.window("event_time", length), "merchant", "salt")
        .agg(
            F.count("*").alias("payments"),
            F.sum("cents").alias("cents"),
            F.size(F.collect_set("card")).alias("cards"),
        )
    )


def second_step(parts: DataFrame) -> DataFrame:
    """The totals of each window and merchant."""
    return parts.groupBy("window", "merchant").agg(
        F.sum("payments").alias("payments"), F.sum("cents").alias("cents"), F.sum("cards").alias("cards")
    )


def main() -> None:
    """Read payments, append the totals of windows that have closed."""
    parser = application.arguments(__doc__)
    parser.add_argument("--salts", type=int, default=8, metavar="N")
    parser.add_argument("--minutes", type=int, default=5, metavar="M", help="the length of a window")
    parser.add_argument("--watermark", default="1 minute")
    parser.add_argument("--wrong", action="store_true", help="forget the second step")
    args = parser.parse_args()
    payments = application.events(application.session("salted"), args, PAYMENTS)
    totals = first_step(payments, args.salts, f"{args.minutes} minutes", args.watermark)
    if not args.wrong:
        totals = second_step(totals)
    rows = totals.select(F.col("window.start").alias("start"), "merchant", "payments", "cents", "cards")
    application.append(rows, args, "salted")


if __name__ == "__main__":
    main()
