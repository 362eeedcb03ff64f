"""Each payment once: `dropDuplicates` with the event time among the columns.

    spark-submit dedup_watermark.py --input DIR --output DIR

Two rows are the same if their id *and* their event time are. Because the event time is among the columns,
Spark can forget an id when the watermark has passed its time: a second copy would be too late anyway. The
state is the ids of one watermark's length.

Without the event time in the list nothing is ever forgotten, watermark or not: the state grows with every id
(`streambank doctor` says so). If a producer that retries sends another event time, use `dedup_within.py`; if
copies come hours later, `dedup_ttl.py`. In Flink: a `KeyedProcessFunction` that keeps a flag until a timer,
or `ROW_NUMBER() = 1`.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"


def once(payments: DataFrame, watermark: str) -> DataFrame:
    """Each payment once, in the batch in which its first copy comes."""
    return payments.withWatermark("event_time", watermark).dropDuplicates(["payment", "event_time"])


def main() -> None:
    """Read payments, append each once."""
    parser = application.arguments(__doc__)
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    payments = application.events(application.session("dedup_watermark"), args, PAYMENTS)
    application.append(once(payments, args.watermark), args, "dedup_watermark")


if __name__ == "__main__":
    main()
