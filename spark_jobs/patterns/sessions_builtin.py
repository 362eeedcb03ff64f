"""Sessions by `session_window`: sums of a visit, without a line of state code.

    spark-submit sessions_builtin.py --input DIR --output DIR [--gap "15 minutes"]

Spark keeps one row for each running session of a user and merges sessions when an event falls between two of
them. In mode `append` a session comes out once, when the watermark has passed its end, which is its last
event plus the gap; then its state goes. So the state is as large as the number of users that were there
within gap and watermark.

An event that comes later than the watermark is dropped and counted (`numRowsDroppedByWatermark`). What ends a
session is time alone; if something else should (a payment, a logout), see `sessions_timers.py`. In Flink:
`EventTimeSessionWindows.withGap(...)`.
"""

from __future__ import annotations

import application
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ACTIONS = "event_time TIMESTAMP, user STRING, action STRING, feature STRING, ms BIGINT"


def sessions(actions: DataFrame, gap: str, watermark: str) -> DataFrame:
    """One row for each session that has ended: from when to when, how many actions, how long they took."""
    return (
        actions.withWatermark("event_time", watermark)
        .groupBy(F.session_window("event_time", gap).alias("session"), "user")
        .agg(F.count("*").alias("actions"), F.sum("ms").alias("ms"), F.max("event_time").alias("last_at"))
        .select("user", F.col("session.start").alias("first_at"), "last_at", "actions", "ms")
    )


def main() -> None:
    """Read actions, append the sessions that end."""
    parser = application.arguments(__doc__)
    parser.add_argument("--gap", default="15 minutes")
    parser.add_argument("--watermark", default="1 minute")
    args = parser.parse_args()
    actions = application.events(application.session("sessions_builtin"), args, ACTIONS)
    application.append(sessions(actions, args.gap, args.watermark), args, "sessions_builtin")


if __name__ == "__main__":
    main()
