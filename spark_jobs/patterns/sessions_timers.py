"""Sessions by timers: a session ends when nothing comes, and says so when it ends.

    spark-submit sessions_timers.py --input DIR --output DIR [--gap-minutes 15]

`session_window` (`sessions_builtin.py`) is enough for sums. A `transformWithState` session can do more: here
it counts the actions and can end early, by the action `pay`. Each action sets a timer at the end of its gap,
a row of state until then. One that expires while a later action keeps the session open does nothing. The last
one, when the watermark passes it, writes the session and clears the state, so a user who left leaves nothing
behind.

The watermark is the newest event time of *all* users less the delay. If no event of any user comes at all, it
stands, and with it every event-time timer: send a heartbeat, or use processing-time timers. In Flink:
`EventTimeSessionWindows` or a `KeyedProcessFunction` with timers; an idle source is `withIdleness`.
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
SESSION = "first_at TIMESTAMP, last_at TIMESTAMP, actions INT, ms BIGINT"
ENDED = "user STRING, first_at TIMESTAMP, last_at TIMESTAMP, actions INT, ms BIGINT, ended_by STRING"


class Sessions(in_order.InOrder):
    """Keeps the running session of a user.

    Args:
        gap: The longest time between two actions of one session.
    """

    def __init__(self, gap: timedelta) -> None:
        """Keep the settings; this runs in the driver."""
        super().__init__(ACTIONS)
        self.gap = gap

    def open(self, handle: StatefulProcessorHandle) -> None:
        """Open the running session."""
        self.session = handle.getValueState("session", SESSION)

    def event(self, key: Any, row: Row) -> Iterator[Row]:
        """Add an action; write the session before it if that has ended, and this one if the user pays."""
        session = self.session.get()
        if session is not None and row.event_time - session[1] > self.gap:
            yield self._ended(key, session, "gap")
            session = None
        first_at, _, actions, ms = session or (row.event_time, None, 0, 0)
        session = (first_at, row.event_time, actions + 1, ms + row.ms)
        if row.action == "pay":
            self.session.clear()
            yield self._ended(key, session, "pay")
        else:
            self.session.update(session)
            self.handle.registerTimer(milliseconds(row.event_time + self.gap) + 1)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Write the session if the watermark has passed the end of its gap."""
        yield from super().handleExpiredTimer(key, timerValues, expiredTimerInfo)
        session = self.session.get()
        if (
            session is not None
            and milliseconds(session[1] + self.gap) < timerValues.getCurrentWatermarkInMs()
        ):
            self.session.clear()
            yield self._ended(key, session, "gap")

    @staticmethod
    def _ended(key: Any, session: tuple[Any, ...], by: str) -> Row:
        first_at, last_at, actions, ms = session
        return Row(user=key[0], first_at=first_at, last_at=last_at, actions=actions, ms=ms, ended_by=by)


def sessions(actions: DataFrame, gap: timedelta, watermark: str) -> DataFrame:
    """One row for each session that has ended."""
    return (
        actions.withWatermark("event_time", watermark)
        .groupBy("user")
        .transformWithState(Sessions(gap), ENDED, outputMode="Append", timeMode="EventTime")
    )


def main() -> None:
    """Read actions, append the sessions that end."""
    parser = application.arguments(__doc__)
    parser.add_argument("--gap-minutes", type=float, default=15.0, metavar="M")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    application.ship(in_order)
    actions = application.events(application.session("sessions_timers"), args, ACTIONS)
    application.append(
        sessions(actions, timedelta(minutes=args.gap_minutes), args.watermark), args, "sessions_timers"
    )


if __name__ == "__main__":
    main()
