"""Each payment once for so many hours: a flag for each id, with a time to live.

    spark-submit dedup_ttl.py --input DIR --output DIR [--hours 24]

A `transformWithState` keeps one value for each id, and Spark removes it `--hours` of processing time after it
was written, in the batch that finds it expired. No watermark is needed, so nothing else of the query waits,
and copies may come a day later. The state is the ids of `--hours`: with 1,000 payments a second and 24 hours,
86 million rows. Choose RocksDB for that, and the hours with care.

Processing time means the clock of the driver. If the query was down for a day, all flags expire in its first
batch, although the source still holds copies that it had not read: after a long stop copies can come through.
In Flink: `ValueState` with `StateTtlConfig`, which has the same limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import application
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"


class Once(StatefulProcessor):
    """Lets the first row of a key through.

    Args:
        remembered: How long a key is kept, in processing time.
    """

    def __init__(self, remembered: timedelta) -> None:
        """Keep the setting; this runs in the driver."""
        self.ttl_ms = round(remembered.total_seconds() * 1000)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the flag."""
        self.passed = handle.getValueState("passed", "passed BOOLEAN", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Return the first row, unless one was returned before."""
        if not self.passed.exists():
            self.passed.update((True,))
            yield min(rows)

    def close(self) -> None:
        """Nothing is held."""


def once(payments: DataFrame, remembered: timedelta) -> DataFrame:
    """Each payment once, in the batch in which its first copy comes."""
    return payments.groupBy("payment").transformWithState(
        Once(remembered), PAYMENTS, outputMode="Append", timeMode="ProcessingTime"
    )


def main() -> None:
    """Read payments, append each once."""
    parser = application.arguments(__doc__)
    parser.add_argument("--hours", type=float, default=24.0, metavar="H")
    args = parser.parse_args()
    payments = application.events(application.session("dedup_ttl"), args, PAYMENTS)
    application.append(once(payments, timedelta(hours=args.hours)), args, "dedup_ttl")


if __name__ == "__main__":
    main()
