"""A sequence with something missing: a search, then an item in the cart, then no payment within ten minutes.

    spark-submit sequence.py --input DIR --output DIR [--minutes 10]

The state of a user is how far the sequence has got: a small value, whose first field is the step. `InOrder`
hands the actions over in the order in which they happened. "Then not" needs a timer: if no payment has come
when the watermark passes the end of the ten minutes, the sequence is complete. A payment clears the state,
and a new search begins again.

A join cannot say "then not", and a window does not know the order. In Flink: CEP,
`begin("search").followedBy("add").notFollowedBy("pay").within(...)`. Spark has no library for it; a longer
sequence is another step in the same value.
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

ACTIONS = "event_time TIMESTAMP, user STRING, action STRING, feature STRING, ms BIGINT"
STEP = "step STRING, searched_at TIMESTAMP, added_at TIMESTAMP"
LEFT = "user STRING, searched_at TIMESTAMP, added_at TIMESTAMP"


class LeftCarts(in_order.InOrder):
    """Finds a search, then an item in the cart, then no payment in time.

    Args:
        within: How long after the item was added a payment still counts.
    """

    def __init__(self, within: timedelta) -> None:
        """Keep the setting; this runs in the driver."""
        super().__init__(ACTIONS)
        self.within = within

    def open(self, handle: StatefulProcessorHandle) -> None:
        """Open the step that the user has reached."""
        self.reached = handle.getValueState("reached", STEP)

    def event(self, key: Any, row: Row) -> Iterator[Row]:
        """Go one step on, or back to the beginning."""
        step, searched_at, added_at = self.reached.get() or ("", None, None)
        if step == "added" and row.event_time > added_at + self.within:
            yield self._left(key, searched_at, added_at)
            step = ""
        if row.action == "search" and step in ("", "searched"):
            self.reached.update(("searched", row.event_time, None))
        elif row.action == "add" and step == "searched":
            self.reached.update(("added", searched_at, row.event_time))
            self.handle.registerTimer(milliseconds(row.event_time + self.within) + 1)
        elif row.action == "pay":
            self.reached.clear()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Say that a cart was left if the watermark has passed its time."""
        yield from super().handleExpiredTimer(key, timerValues, expiredTimerInfo)
        step, searched_at, added_at = self.reached.get() or ("", None, None)
        passed = timerValues.getCurrentWatermarkInMs()
        if step == "added" and milliseconds(added_at + self.within) < passed:
            yield self._left(key, searched_at, added_at)

    def _left(self, key: Any, searched_at: Any, added_at: Any) -> Row:
        self.reached.clear()
        return Row(user=key[0], searched_at=searched_at, added_at=added_at)


def left_carts(actions: DataFrame, within: timedelta, watermark: str) -> DataFrame:
    """One row for each cart that was left."""
    return (
        actions.withWatermark("event_time", watermark)
        .groupBy("user")
        .transformWithState(LeftCarts(within), LEFT, outputMode="Append", timeMode="EventTime")
    )


def main() -> None:
    """Read actions, append the carts that were left."""
    parser = application.arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="M")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    application.ship(in_order)
    actions = application.events(application.session("sequence"), args, ACTIONS)
    application.append(left_carts(actions, timedelta(minutes=args.minutes), args.watermark), args, "sequence")


if __name__ == "__main__":
    main()
