"""Totals of each card, for ever: the simplest state, one row a key.

    spark-submit keyed_totals.py --input DIR --output DIR

`groupBy(...).agg(...)` keeps one row of state for each card and merges the rows of a batch into it before it
is stored, so the state is as large as the number of cards, not of payments. Output mode `update` gives the
new totals of the cards that a batch touched; the reader takes the newest row of each.

Without a watermark no card is ever forgotten. That is right where the keys are bounded (cards of a bank);
where they are not (session ids, IP addresses), use windows (`sessions_builtin.py`) or a time to live
(`dedup_ttl.py`). In Flink: `keyBy().sum()` or a `ReducingState`.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"


def totals(payments: DataFrame) -> DataFrame:
    """How often and how much each card has paid, its largest payment and its newest one."""
    return payments.groupBy("card").agg(
        F.count("*").alias("payments"),
        F.sum("cents").alias("cents"),
        F.max("cents").alias("largest"),
        F.max("event_time").alias("newest"),
    )


def main() -> None:
    """Read payments, write the totals of each batch's cards."""
    args = application.arguments(__doc__).parse_args()
    payments = application.events(application.session("keyed_totals"), args, PAYMENTS)
    application.replace_batches(totals(payments), args, "keyed_totals")


if __name__ == "__main__":
    main()
