"""Sessions of each aircraft with transformWithState: first flight, legs, and delay so far.

    spark-submit aircraft_sessions.py --input DIR --output DIR [--checkpoint DIR]

A session is a chain of departures of one aircraft with no more than `--gap-hours` between two of them. Every
departure appends one row: the session that it belongs to, its number in the session, and the delay so far.
The RocksDB provider keeps the state, one value per aircraft, with a time to live: an aircraft that was not
seen for `--ttl-hours` of processing time is forgotten. The application does not use Streambank.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

FLIGHTS = (
    "event_time TIMESTAMP, origin STRING, dest STRING, carrier STRING, flight INT, tailnum STRING, "
    "dep_delay_min INT"
)
SESSION = (
    "first_at TIMESTAMP, first_flight STRING, first_origin STRING, last_at TIMESTAMP, legs INT, delay_min INT"
)
LEG = (
    "tailnum STRING, event_time TIMESTAMP, flight STRING, origin STRING, dest STRING, "
    "session_start TIMESTAMP, first_flight STRING, first_origin STRING, leg INT, delay_min_so_far INT"
)
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Sessions(StatefulProcessor):
    """Keeps the running session of one aircraft.

    Args:
        gap: The longest time between two departures of one session.
        ttl_ms: Milliseconds of processing time after which an aircraft that was not seen is forgotten.
    """

    def __init__(self, gap: timedelta, ttl_ms: int) -> None:
        """Keep the settings; this runs in the driver, and the object is pickled to the workers."""
        self._gap = gap
        self._ttl_ms = ttl_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variable."""
        self._session = handle.getValueState("session", SESSION, self._ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Return one row for each departure, in order of event time, not of arrival."""
        state = self._session.get()
        first_at, first_flight, first_origin, last_at, legs, delay_min = state or (
            None,
            None,
            None,
            None,
            0,
            0,
        )
        for row in sorted(rows, key=lambda leg: (leg.event_time, leg.flight)):
            flight = f"{row.carrier}{row.flight}"
            if last_at is None or row.event_time - last_at > self._gap:
                first_at, first_flight, first_origin, legs, delay_min = (
                    row.event_time,
                    flight,
                    row.origin,
                    0,
                    0,
                )
            last_at = row.event_time
            legs += 1
            delay_min += row.dep_delay_min or 0
            yield Row(
                tailnum=row.tailnum,
                event_time=row.event_time,
                flight=flight,
                origin=row.origin,
                dest=row.dest,
                session_start=first_at,
                first_flight=first_flight,
                first_origin=first_origin,
                leg=legs,
                delay_min_so_far=delay_min,
            )
        self._session.update((first_at, first_flight, first_origin, last_at, legs, delay_min))

    def close(self) -> None:
        """Nothing to close."""


def sessions(flights: DataFrame, gap: timedelta, ttl_ms: int) -> DataFrame:
    """One row for each departure of a known aircraft."""
    return (
        flights.where("tailnum IS NOT NULL")
        .groupBy("tailnum")
        .transformWithState(
            statefulProcessor=Sessions(gap, ttl_ms),
            outputStructType=LEG,
            outputMode="Append",
            timeMode="ProcessingTime",
        )
    )


def main() -> None:
    """Read departures from a directory, follow each aircraft, append to a directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", help="default: OUTPUT.checkpoint")
    parser.add_argument("--gap-hours", type=float, default=12.0)
    parser.add_argument("--ttl-hours", type=float, default=24.0)
    parser.add_argument("--files-per-trigger", type=int, default=1)
    parser.add_argument("--trigger", default="1 second", help="the time between two batches")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("aircraft_sessions").getOrCreate()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    flights = (
        spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", args.files_per_trigger).json(args.input)
    )
    query = (
        sessions(flights, timedelta(hours=args.gap_hours), round(args.ttl_hours * 3_600_000))
        .writeStream.queryName("aircraft_sessions")
        .format("parquet")
        .outputMode("append")
        .option("checkpointLocation", args.checkpoint or f"{args.output}.checkpoint")
        .trigger(processingTime=args.trigger)
        .start(args.output)
    )
    try:
        query.awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
