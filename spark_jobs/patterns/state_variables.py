"""The three kinds of state variable, each with a time to live.

    spark-submit state_variables.py --input DIR --output DIR [--list-ttl 600] [--map-ttl 600]

| kind | here | what its time to live ends |
|---|---|---|
| value | how much a card has paid | the value; each `update` gives it the full time again |
| list | the newest payments | each element by itself, counted from when it was written |
| map | cents by merchant | each entry by itself; `updateValue` renews that entry alone |

Time to live runs in processing time: a variable may have one only under `timeMode="ProcessingTime"`, and
"now" is the moment at which Spark planned the batch, the same for all rows of it. What has expired is not
returned any more, and leaves the store with the next batch of the query, whether or not the key comes again.
So idle keys need no timer. Spark's `statestore` source shows the end of each as `ttlExpirationMs`. The state
of a card is one value, at most the payments of `--list-ttl` seconds and one entry for each merchant of
`--map-ttl` seconds.

Traps: with `timeMode="ProcessingTime"` Spark 4.3 runs a batch at every trigger although nothing came, and
`availableNow` (`--once`) does not end: 1,000 empty batches in ten minutes. Hence `noDataMicroBatches` is off
here, and what has expired waits for the next event to leave the store. `put` writes a whole list, so it
renews every element; `appendValue` and `appendList` leave the others as old as they are. A query that stopped
for longer than the time to live has forgotten when it goes on. And an answer that depends on the clock
differs when the same events are replayed; where it must not, forget by event-time timers
(`sessions_timers.py`). In Flink: `ValueState`, `ListState` and `MapState` with `StateTtlConfig`,
`UpdateType.OnCreateAndWrite`, `NeverReturnExpired`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import application
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

PAYMENTS = "event_time TIMESTAMP, payment STRING, card STRING, merchant STRING, cents BIGINT"
KEPT = "card STRING, payments BIGINT, cents BIGINT, newest BIGINT, merchants BIGINT, merchant_cents BIGINT"


@dataclass(frozen=True)
class Ttl:
    """The time to live of each variable, in milliseconds."""

    value: int
    list: int
    map: int


class Variables(StatefulProcessor):
    """Keeps a value, a list and a map for each card, and writes what is left of them.

    Args:
        ttl: How long each is kept.
    """

    def __init__(self, ttl: Ttl) -> None:
        """Keep the settings; this runs in the driver."""
        self.ttl = ttl

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the variables."""
        self.paid = handle.getValueState("paid", "payments BIGINT, cents BIGINT", self.ttl.value)
        self.newest = handle.getListState("newest", "payment STRING", self.ttl.list)
        self.merchants = handle.getMapState("merchants", "merchant STRING", "cents BIGINT", self.ttl.map)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Add the payments of a batch to each variable; write what the card has now."""
        payments, cents = self.paid.get() or (0, 0)
        for row in rows:
            payments, cents = payments + 1, cents + row.cents
            self.newest.appendValue((row.payment,))
            (before,) = self.merchants.getValue((row.merchant,)) or (0,)
            self.merchants.updateValue((row.merchant,), (before + row.cents,))
        self.paid.update((payments, cents))
        by_merchant = [entry[0] for entry in self.merchants.values()]
        yield Row(
            card=key[0],
            payments=payments,
            cents=cents,
            newest=sum(1 for _ in self.newest.get()),
            merchants=len(by_merchant),
            merchant_cents=sum(by_merchant),
        )

    def close(self) -> None:
        """Nothing is held."""


def kept(payments: DataFrame, ttl: Ttl) -> DataFrame:
    """What is kept of each card that a batch touches."""
    return payments.groupBy("card").transformWithState(
        Variables(ttl), KEPT, outputMode="Update", timeMode="ProcessingTime"
    )


def main() -> None:
    """Read payments, write what is kept of each batch's cards."""
    parser = application.arguments(__doc__)
    parser.add_argument("--value-ttl", type=float, default=3600.0, metavar="S", help="seconds")
    parser.add_argument("--list-ttl", type=float, default=600.0, metavar="S", help="seconds")
    parser.add_argument("--map-ttl", type=float, default=600.0, metavar="S", help="seconds")
    args = parser.parse_args()
    ttl = Ttl(*(round(seconds * 1000) for seconds in (args.value_ttl, args.list_ttl, args.map_ttl)))
    spark = application.session("state_variables")
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    payments = application.events(spark, args, PAYMENTS)
    application.replace_batches(kept(payments, ttl), args, "state_variables")


if __name__ == "__main__":
    main()
