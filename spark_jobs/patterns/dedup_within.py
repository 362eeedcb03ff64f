"""Each payment once, whatever the event time of its copies: `dropDuplicatesWithinWatermark`.

    spark-submit dedup_within.py --input DIR --output DIR [--watermark "1 minute"]

The first row of an id passes, and the id is kept until the watermark has passed its event time plus the
delay. Copies may have other event times, as those of a producer that stamps each try, as long as they lie
within the delay. The state is the ids of twice the delay.

A copy that is further away than that comes through: choose the delay by how long a producer retries, not by
how late events are. Which of the copies in one batch passes is not defined, so its other columns should be
equal. For copies of hours or days the delay would hold back nothing else, but windows after it wait as long:
see `dedup_ttl.py`. In Flink: a flag with a timer.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"


def once(payments: DataFrame, watermark: str) -> DataFrame:
    """Each payment once, in the batch in which its first copy comes."""
    return payments.withWatermark("event_time", watermark).dropDuplicatesWithinWatermark(["payment"])


def main() -> None:
    """Read payments, append each once."""
    parser = application.arguments(__doc__)
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    payments = application.events(application.session("dedup_within"), args, PAYMENTS)
    application.append(once(payments, args.watermark), args, "dedup_within")


if __name__ == "__main__":
    main()
