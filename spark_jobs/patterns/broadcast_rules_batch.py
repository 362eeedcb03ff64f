"""The same rules by `foreachBatch`: any table, by an ordinary batch read, and joined in the function.

    spark-submit broadcast_rules_batch.py --input DIR --output DIR --rules DIR

In `foreachBatch` a batch is an ordinary DataFrame, and so is what it is joined with: `spark.read` lists the
files in each call. Use this where the rules come from a database or a catalog, where a batch needs more than
one query, or where the rules are only good as a whole (read them once, then join twice). The output must be
idempotent, since Spark runs a batch again that was not committed: here each batch replaces its own folder.

What `broadcast_rules.py` says of batches that run again holds here, too: the rule is the one that was valid
at the event's time. With rules that have no such time, write the version of the rules with each row, so that
it can be said afterwards which ones applied. In Flink: a `BroadcastProcessFunction`.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"
RULES = "of STRING, limit BIGINT, valid_from TIMESTAMP"


def over_limit(payments: DataFrame, rules: DataFrame) -> DataFrame:
    """One row for each payment above the limit that was valid at its time."""
    next_one = F.lead("valid_from").over(Window.partitionBy("of").orderBy("valid_from"))
    valid = (
        (F.col("merchant") == F.col("of"))
        & (F.col("event_time") >= F.col("valid_from"))
        & (F.col("valid_to").isNull() | (F.col("event_time") < F.col("valid_to")))
    )
    found = payments.join(F.broadcast(rules.withColumn("valid_to", next_one)), valid).where("cents > limit")
    return found.select("payment", "merchant", "cents", "limit", "event_time")


def main() -> None:
    """Read payments, write those above the limit of their merchant, batch by batch."""
    parser = application.arguments(__doc__)
    parser.add_argument("--rules", required=True, metavar="DIR")
    args = parser.parse_args()
    payments = application.events(application.session("broadcast_rules_batch"), args, PAYMENTS)

    def write(batch: DataFrame, number: int) -> None:
        rules = batch.sparkSession.read.schema(RULES).json(args.rules)
        found = over_limit(batch, rules)
        found.write.mode("overwrite").json(f"{args.output}/batch={number}")

    application.each_batch(payments, args, "broadcast_rules_batch", write, "append")


if __name__ == "__main__":
    main()
