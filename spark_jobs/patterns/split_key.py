"""Split one hot key: a key that is hot is kept in parts, all others whole.

    spark-submit split_key.py --input DIR --output DIR [--hot card-0 --hot ...] [--parts 8]

Salting (`salted.py`) splits every key and pays for it at every key. Where it is known which few keys are hot
(an internal account, the largest customer), it is enough to split those. Here each card's payments are added
up once, though 5 in 100 come twice, so the state of a card is the payments that it has seen, and the work on
a card is done by one task. A hot card has `--parts` keys, `card-0#0` to `card-0#7`; the part is made of the
payment's id, so that a payment and its duplicate meet in the same part.

Two `transformWithState` follow each other. The first keeps the payments seen, by card and part, and writes
what a batch adds: one row a part and batch. The second keeps the totals by card, and so gets at most eight
rows of a hot card, however many payments there were. Each of them may be written in any order, since sums
commute.

Seen payments are kept for `--ttl-hours` after their first event: a timer in event time removes them by the
hour. Totals are kept for ever. Trap: change `--hot` or `--parts` only on a new checkpoint. A running query
would look for a payment in another part than the one that has seen it; totals alone could be split
differently at any time (`hot_keys_found.py`). In Flink: a `keyBy` on the key and its part, a
`KeyedProcessFunction`, a second `keyBy` on the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import application
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"
ADDED = "card STRING, event_time TIMESTAMP, payments BIGINT, cents BIGINT"
TOTALS = "card STRING, payments BIGINT, cents BIGINT"
HOUR_MS = 3_600_000


class FirstSeen(StatefulProcessor):
    """Adds up the payments of a part that were not seen before.

    Args:
        ttl: How long after its event a payment is remembered.
    """

    def __init__(self, ttl: timedelta) -> None:
        """Keep the settings; this runs in the driver."""
        self.ttl = ttl

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the payments seen, with the hour in which each is forgotten."""
        self.handle = handle
        self.seen = handle.getMapState("seen", "payment STRING", "forget_ms BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Write one row for the new payments of a batch."""
        new: dict[str, Row] = {}
        for row in rows:
            if row.payment not in new and not self.seen.containsKey((row.payment,)):
                new[row.payment] = row
                forget_ms = self._end_of_hour(row.event_time + self.ttl)
                self.seen.updateValue((row.payment,), (forget_ms,))
                self.handle.registerTimer(forget_ms)
        if new:
            cents = sum(row.cents for row in new.values())
            newest = max(row.event_time for row in new.values())
            yield Row(card=key[0], event_time=newest, payments=len(new), cents=cents)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Forget the payments of an hour."""
        passed = expiredTimerInfo.getExpiryTimeInMs()
        for payment in [payment for payment, (forget_ms,) in self.seen.iterator() if forget_ms <= passed]:
            self.seen.removeKey(payment)
        return iter(())

    def close(self) -> None:
        """Nothing is held."""

    @staticmethod
    def _end_of_hour(moment: datetime) -> int:
        return (int(moment.timestamp() * 1000) // HOUR_MS + 1) * HOUR_MS


class Totals(StatefulProcessor):
    """Merges what the parts of a card add."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the totals."""
        self.totals = handle.getValueState("totals", "payments BIGINT, cents BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Add a batch, write the totals."""
        payments, cents = self.totals.get() or (0, 0)
        for row in rows:
            payments, cents = payments + row.payments, cents + row.cents
        self.totals.update((payments, cents))
        yield Row(card=key[0], payments=payments, cents=cents)

    def close(self) -> None:
        """Nothing is held."""


def totals(payments: DataFrame, hot: list[str], parts: int, ttl: timedelta, watermark: str) -> DataFrame:
    """The totals of each card that a batch touches."""
    part = F.when(F.col("card").isin(hot), F.pmod(F.xxhash64("payment"), F.lit(parts))).otherwise(0)
    added = (
        payments.withWatermark("event_time", watermark)
        .withColumn("part", part)
        .groupBy("card", "part")
        .transformWithState(FirstSeen(ttl), ADDED, "Append", "EventTime", eventTimeColumnName="event_time")
    )
    return added.groupBy("card").transformWithState(Totals(), TOTALS, "Append", "None")


def main() -> None:
    """Read payments, write the totals of each batch's cards."""
    parser = application.arguments(__doc__)
    parser.add_argument("--hot", action="append", metavar="CARD", help="a card to split; default: card-0")
    parser.add_argument("--parts", type=int, default=8, metavar="N")
    parser.add_argument("--ttl-hours", type=float, default=24.0, metavar="H")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    payments = application.events(application.session("split_key"), args, PAYMENTS)
    ttl = timedelta(hours=args.ttl_hours)
    rows = totals(payments, args.hot or ["card-0"], args.parts, ttl, args.watermark)
    application.replace_batches(rows, args, "split_key", "append")


if __name__ == "__main__":
    main()
