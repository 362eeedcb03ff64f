"""Feature vectors of each user at each action, as a model that scores online needs them.

    spark-submit features.py --input DIR --output DIR

How many actions, and how long they took, in the last 5 minutes, hour and day. Three sliding windows would
keep every slide of each. Here a map has one entry for each minute in which the user did something: at most
1,440 entries, however busy the user is. An action adds to the entry of its minute, and removes what is older
than a day; a timer forgets a user who stays away. A vector adds up the minutes of each span, the running one
included.

So a span is exact to the minute, which the test computes alike. Finer entries cost more state, coarser ones
less. In Flink: `MapState` in a `KeyedProcessFunction`; a feature store does the same outside of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import application
import in_order
from in_order import milliseconds
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

ACTIONS = "event_time TIMESTAMP, user STRING, action STRING, feature STRING, ms BIGINT"
SPANS = {"5m": 5, "1h": 60, "1d": 1440}
"""Minutes of each span, by its name."""
VECTOR = "user STRING, event_time TIMESTAMP, " + ", ".join(
    f"actions_{name} BIGINT, ms_{name} BIGINT" for name in SPANS
)


class Features(in_order.InOrder):
    """Keeps sums of each minute of a user's newest day."""

    def open(self, handle: StatefulProcessorHandle) -> None:
        """Open the map from minutes since 1970 to the sums of each."""
        self.minutes = handle.getMapState("minutes", "minute BIGINT", "actions BIGINT, ms BIGINT")
        self.day = max(SPANS.values())

    def event(self, key: Any, row: Row) -> Iterator[Row]:
        """Add an action to its minute, forget minutes of more than a day ago, add up the spans."""
        now = milliseconds(row.event_time) // 60_000
        actions, ms = self.minutes.getValue((now,)) or (0, 0)
        self.minutes.updateValue((now,), (actions + 1, ms + row.ms))
        sums = {name: [0, 0] for name in SPANS}
        gone = []
        for (minute,), (actions, ms) in self.minutes.iterator():
            if minute <= now - self.day:
                gone.append(minute)
            for name, span in SPANS.items():
                if minute > now - span:
                    sums[name][0] += actions
                    sums[name][1] += ms
        for minute in gone:
            self.minutes.removeKey((minute,))
        self.handle.registerTimer((now + self.day) * 60_000)
        parts = {f"actions_{name}": one[0] for name, one in sums.items()}
        parts |= {f"ms_{name}": one[1] for name, one in sums.items()}
        yield Row(user=key[0], event_time=row.event_time, **parts)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Forget a user who has done nothing for a day."""
        yield from super().handleExpiredTimer(key, timerValues, expiredTimerInfo)
        passed = timerValues.getCurrentWatermarkInMs() // 60_000
        if all(minute <= passed - self.day for (minute,), _ in self.minutes.iterator()):
            self.minutes.clear()


def vectors(actions: DataFrame, watermark: str) -> DataFrame:
    """One row for each action."""
    return (
        actions.withWatermark("event_time", watermark)
        .groupBy("user")
        .transformWithState(Features(ACTIONS), VECTOR, outputMode="Append", timeMode="EventTime")
    )


def main() -> None:
    """Read actions, append a vector for each."""
    parser = application.arguments(__doc__)
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    application.ship(in_order)
    actions = application.events(application.session("features"), args, ACTIONS)
    application.append(vectors(actions, args.watermark), args, "features")


if __name__ == "__main__":
    main()
