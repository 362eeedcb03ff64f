"""Wrong: sessions of devices that never close, since heartbeats count as activity.

    spark-submit session_never_closes.py --input DIR --output DIR [--checkpoint DIR] [--once]

Events come as files of JSON lines: `{"at": "2026-05-04T10:00:00Z", "device": "d1", "kind": "heartbeat"}`.

What is wrong: every event extends the session, and each device sends a heartbeat every minute, so there never
is a gap of ten minutes. The watermark is there, and has nothing to close. A timer that each event moves on
(`deleteTimer`, `registerTimer`) has the same flaw.
What happens: no session is ever written in append mode, one row per device stays for ever, and whatever a
session collects (here a list of pages) grows within it. Nothing fails, the output is just empty.
What doctor says: `endless-session`, with how long the longest session has been open.
The cure: let only real activity into the session, and give it a longest duration (the patterns
sessions_builtin, sessions_timers and user_sessions).
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

EVENTS = "at TIMESTAMP, device STRING, kind STRING, page STRING"


def sessions(events: DataFrame) -> DataFrame:
    """One row for each session that has closed. Wrong: `events` still has the heartbeats."""
    return (
        events.withWatermark("at", "10 minutes")
        .groupBy(F.session_window("at", "10 minutes"), "device")
        .agg(F.count("*").alias("events"), F.collect_list("page").alias("pages"))
        .select("device", F.col("session_window.start").alias("began"), "events", "pages")
    )


def main() -> None:
    """Read events from a directory, cut them into sessions, append to a directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True, metavar="DIR")
    parser.add_argument("--output", required=True, metavar="DIR")
    parser.add_argument("--checkpoint", metavar="DIR", help="default: OUTPUT.checkpoint")
    parser.add_argument("--once", action="store_true", help="end when all available input has been read")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("session_never_closes").getOrCreate()
    events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(args.input)
    writer = (
        sessions(events)
        .writeStream.format("parquet")
        .option("checkpointLocation", args.checkpoint or f"{args.output}.checkpoint")
    )
    try:
        (writer.trigger(availableNow=True) if args.once else writer).start(args.output).awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
