"""The volume-weighted average price of each symbol, a minute at a time.

    spark-submit vwap.py --input DIR --output DIR [--window "1 minute"]

The price is the sum of price times shares by the sum of shares. Both sums are exact integers in the state,
one row for each symbol and open window; the division comes last and only once. A sum of floating-point
numbers would depend on the order in which a batch adds them, and a batch that runs again could give another
last digit.

Keep the parts, not the quotient: averages cannot be merged, sums can. That is also what lets Spark add up the
rows of a batch before they reach the state. In Flink: an `AggregateFunction` whose accumulator holds the two
sums.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

TRADES = "event_time TIMESTAMP, symbol STRING, cents BIGINT, shares BIGINT"


def prices(trades: DataFrame, window: str, watermark: str) -> DataFrame:
    """One row for each symbol and window with trades: the price in hundredths of a cent, rounded down."""
    return (
        trades.withWatermark("event_time", watermark)
        .groupBy(F.window("event_time", window), "symbol")
        .agg(F.sum(F.col("cents") * F.col("shares")).alias("paid"), F.sum("shares").alias("shares"))
        .where("shares > 0")
        .select(
            "symbol",
            F.col("window.start").alias("from"),
            "shares",
            F.expr("paid * 100 div shares").alias("centi_cents"),
        )
    )


def main() -> None:
    """Read trades, append the price of each window that ends."""
    parser = application.arguments(__doc__)
    parser.add_argument("--window", default="1 minute")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    trades = application.events(application.session("vwap"), args, TRADES)
    application.append(prices(trades, args.window, args.watermark), args, "vwap")


if __name__ == "__main__":
    main()
