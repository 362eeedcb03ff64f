"""A tracker of user sessions, with the three kinds of state variable at work.

    spark-submit user_sessions.py --input DIR --output DIR [--every 100] [--gap-minutes 15] [--pages 10]

| variable | what it keeps | how large |
|---|---|---|
| value | the running session: its start, its newest action, how many | one row |
| list | the newest pages, for "how did they get here" | `--pages` at most |
| map | how often each feature was used | one entry for each feature |

A session gives a row `summary` at every `--every` actions, so that a long one is visible while it runs, and a
row `ended` when nothing has come for `--gap-minutes`. Each row has the five features used most. `InOrder`
hands actions over in order of event time, so that "every 100" and "newest" mean the same whenever they came.

A counter of a feature is a map entry because an action then reads and writes that entry alone; the list is
small, so it is read and written whole. When a session ends all three are cleared, at the next action or by
the timer at the end of the gap, so a user who left leaves nothing behind.

Trap: clear all of them. A map that is not cleared at the end of a session gives the next session its counts,
and no error says so. A timer stays when the session goes on; when it expires, `handleExpiredTimer` compares
it with the session, which is cheaper than to delete it at every action. In Flink: a `KeyedProcessFunction`
with `ValueState`, `ListState`, `MapState` and an event-time timer.
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
SESSION = "first_at TIMESTAMP, last_at TIMESTAMP, actions INT"
REPORT = (
    "user STRING, kind STRING, first_at TIMESTAMP, last_at TIMESTAMP, actions INT, pages ARRAY<STRING>, "
    "top ARRAY<STRUCT<feature: STRING, uses: BIGINT>>"
)
TOP = 5


class Tracker(in_order.InOrder):
    """Keeps the running session of a user, its newest pages and the features used.

    Args:
        every: Actions between two summaries.
        gap: The longest time between two actions of one session.
        pages: How many pages are kept.
    """

    def __init__(self, every: int, gap: timedelta, pages: int) -> None:
        """Keep the settings; this runs in the driver."""
        super().__init__(ACTIONS)
        self.every = every
        self.gap = gap
        self.kept = pages

    def open(self, handle: StatefulProcessorHandle) -> None:
        """Open the session, its pages and its features."""
        self.session = handle.getValueState("session", SESSION)
        self.pages = handle.getListState("pages", "page STRING")
        self.features = handle.getMapState("features", "feature STRING", "uses BIGINT")

    def event(self, key: Any, row: Row) -> Iterator[Row]:
        """Add an action; write the session before it if that has ended, and a summary if one is due."""
        session = self.session.get()
        if session is not None and row.event_time - session[1] > self.gap:
            yield self._end(key, session)
            session = None
        first_at, _, actions = session or (row.event_time, None, 0)
        session = (first_at, row.event_time, actions + 1)
        self.session.update(session)
        self.pages.put([*self.pages.get(), (f"{row.action}/{row.feature}",)][-self.kept :])
        (uses,) = self.features.getValue((row.feature,)) or (0,)
        self.features.updateValue((row.feature,), (uses + 1,))
        self.handle.registerTimer(milliseconds(row.event_time + self.gap) + 1)
        if session[2] % self.every == 0:
            yield self._report(key, "summary", session)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """End the session if the watermark has passed its gap."""
        yield from super().handleExpiredTimer(key, timerValues, expiredTimerInfo)
        session = self.session.get()
        ends = milliseconds(session[1] + self.gap) if session is not None else None
        if ends is not None and ends < timerValues.getCurrentWatermarkInMs():
            yield self._end(key, session)

    def _end(self, key: Any, session: Any) -> Row:
        report = self._report(key, "ended", session)
        for variable in (self.session, self.pages, self.features):
            variable.clear()
        return report

    def _report(self, key: Any, kind: str, session: tuple[Any, ...]) -> Row:
        uses = [(feature, uses) for (feature,), (uses,) in self.features.iterator()]
        top = sorted(uses, key=lambda one: (-one[1], one[0]))[:TOP]
        first_at, last_at, actions = session
        return Row(
            user=key[0],
            kind=kind,
            first_at=first_at,
            last_at=last_at,
            actions=actions,
            pages=[page for (page,) in self.pages.get()],
            top=top,
        )


def reports(actions: DataFrame, tracker: Tracker, watermark: str) -> DataFrame:
    """The summaries of sessions, and their ends."""
    return (
        actions.withWatermark("event_time", watermark)
        .groupBy("user")
        .transformWithState(tracker, REPORT, outputMode="Append", timeMode="EventTime")
    )


def main() -> None:
    """Read actions, append summaries and ends."""
    parser = application.arguments(__doc__)
    parser.add_argument("--every", type=int, default=100, metavar="N", help="actions between summaries")
    parser.add_argument("--gap-minutes", type=float, default=15.0, metavar="M")
    parser.add_argument("--pages", type=int, default=10, metavar="N")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    application.ship(in_order)
    actions = application.events(application.session("user_sessions"), args, ACTIONS)
    tracker = Tracker(args.every, timedelta(minutes=args.gap_minutes), args.pages)
    application.append(reports(actions, tracker, args.watermark), args, "user_sessions")


if __name__ == "__main__":
    main()
