"""Velocity check: five payments by one card within three minutes.

    spark-submit velocity.py --input DIR --output DIR [--payments 5] [--minutes 3]

The state of a card is the list of its newest payments, at most `--payments` of them: bounded, however long
the card lives. When the watermark has passed the last one and no more can count, a timer clears it. `InOrder`
hands the payments over in the order in which they happened, so the answer does not depend on how they came.

A windowed count is not the same: five payments from 9:02 to 9:04 fall into two windows of three minutes that
begin at 9:00 and 9:03, and sliding windows keep one row of state for each slide. In Flink: a
`KeyedProcessFunction` with `ListState` and a timer, or CEP with `times(5).within(...)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import application
import in_order
from in_order import milliseconds
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"
ALERT = "card STRING, first_at TIMESTAMP, last_at TIMESTAMP, payments INT, cents BIGINT"


class Velocity(in_order.InOrder):
    """Alerts at each payment that is the last of `payments` within `within`.

    Args:
        payments: How many are too many.
        within: The longest time between the first and the last of them that alerts.
    """

    def __init__(self, payments: int, within: timedelta) -> None:
        """Keep the settings; this runs in the driver."""
        super().__init__(PAYMENTS)
        self.payments = payments
        self.within = within

    def open(self, handle: StatefulProcessorHandle) -> None:
        """Open the list of the newest payments."""
        self.newest = handle.getListState("newest", "event_time TIMESTAMP, cents BIGINT")

    def event(self, key: Any, row: Row) -> Iterator[Row]:
        """Add a payment, drop those that are too old to count, alert if enough are left."""
        recent = [one for one in self.newest.get() if row.event_time - one[0] <= self.within]
        recent = [*recent, (row.event_time, row.cents)][-self.payments :]
        self.newest.put(recent)
        self.handle.registerTimer(milliseconds(row.event_time + self.within) + 1)
        if len(recent) == self.payments:
            cents = sum(one[1] for one in recent)
            yield Row(
                card=key[0], first_at=recent[0][0], last_at=row.event_time, payments=len(recent), cents=cents
            )

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Forget the card if none of its payments can count any more."""
        yield from super().handleExpiredTimer(key, timerValues, expiredTimerInfo)
        passed = timerValues.getCurrentWatermarkInMs()
        if all(milliseconds(one[0] + self.within) < passed for one in self.newest.get()):
            self.newest.clear()


def alerts(payments: DataFrame, count: int, within: timedelta, watermark: str) -> DataFrame:
    """One row for each payment that completes `count` of its card within `within`."""
    return (
        payments.withWatermark("event_time", watermark)
        .groupBy("card")
        .transformWithState(Velocity(count, within), ALERT, outputMode="Append", timeMode="EventTime")
    )


def main() -> None:
    """Read payments, append alerts."""
    parser = application.arguments(__doc__)
    parser.add_argument("--payments", type=int, default=5, metavar="N")
    parser.add_argument("--minutes", type=float, default=3.0, metavar="M")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    application.ship(in_order)
    payments = application.events(application.session("velocity"), args, PAYMENTS)
    found = alerts(payments, args.payments, timedelta(minutes=args.minutes), args.watermark)
    application.append(found, args, "velocity")


if __name__ == "__main__":
    main()
