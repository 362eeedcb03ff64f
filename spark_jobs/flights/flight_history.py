"""Each departure with the previous one of the same flight: an application with a hot key, and its cure.

    spark-submit flight_history.py --input DIR --output DIR [--checkpoint DIR] [--salts N]

State is kept by airport: a map from each flight that leaves there to its last departure. All flights of this
data leave from the three airports of New York, which are one here, `NYC`; every eighth flight is treated as a
flight back, which leaves from its destination. So dozens of airports have a few flights each and one
has thousands, and all of those are in one partition, however many partitions there are.

`--salts 64` is the cure. The key of the map is hashed into a number, the salt, and the state is kept by
airport and salt. A flight always has the same salt, so each departure finds the same entry as before: the
output is the same, row for row. This does not work if a computation needs all flights of an airport together.
Begin it with a new checkpoint: state that was written under other keys is not found again.

The application does not use Streambank.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

FLIGHTS = "event_time TIMESTAMP, dest STRING, carrier STRING, flight INT, dep_delay_min INT"
LAST = "last_at TIMESTAMP, last_delay_min INT, departures INT"
DEPARTURE = (
    "airport STRING, flight STRING, event_time TIMESTAMP, dep_delay_min INT, "
    "last_at TIMESTAMP, last_delay_min INT, departures INT"
)
HOT = "NYC"
WAY_BACK = 8
"""One of so many flights leaves from its destination."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class LastDepartures(StatefulProcessor):
    """Remembers the last departure of each flight of one airport, or of a part of its flights."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variable."""
        self._last = handle.getMapState("last_departure", "flight STRING", LAST)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Return one row for each departure, in order of event time, not of arrival.

        No flight leaves twice at the same time, so the order is unambiguous.
        """
        known: dict[str, tuple[Any, Any, int]] = {}
        for row in sorted(rows, key=lambda departure: (departure.event_time, departure.flight)):
            if row.flight not in known:
                known[row.flight] = self._last.getValue((row.flight,)) or (None, None, 0)
            last_at, last_delay_min, departures = known[row.flight]
            known[row.flight] = (row.event_time, row.dep_delay_min, departures + 1)
            yield Row(
                airport=row.airport,
                flight=row.flight,
                event_time=row.event_time,
                dep_delay_min=row.dep_delay_min,
                last_at=last_at,
                last_delay_min=last_delay_min,
                departures=departures + 1,
            )
        for flight, last in known.items():
            self._last.updateValue((flight,), last)

    def close(self) -> None:
        """Nothing to close."""


def departures(flights: DataFrame) -> DataFrame:
    """Departures with the airport that they leave from; the record that closes a replay is left out."""
    flight = F.concat("carrier", F.col("flight").cast("string"))
    from_destination = F.crc32(flight.cast("binary")) % WAY_BACK == 0
    return flights.where("flight IS NOT NULL").select(
        F.when(from_destination, F.col("dest")).otherwise(HOT).alias("airport"),
        flight.alias("flight"),
        "event_time",
        "dep_delay_min",
    )


def salt(salts: int) -> Column:
    """A number below `salts`, always the same for a flight."""
    return F.pmod(F.xxhash64("flight"), F.lit(salts)).cast("int")


def history(flights: DataFrame, salts: int = 1) -> DataFrame:
    """One row for each departure, with the previous one of the same flight from the same airport."""
    found = departures(flights)
    keyed = (
        found.groupBy("airport")
        if salts == 1
        else found.withColumn("salt", salt(salts)).groupBy("airport", "salt")
    )
    return keyed.transformWithState(
        statefulProcessor=LastDepartures(),
        outputStructType=DEPARTURE,
        outputMode="Append",
        timeMode="None",
    )


def main() -> None:
    """Read departures from a directory, remember each flight's last one, append to a directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", help="default: OUTPUT.checkpoint")
    parser.add_argument(
        "--salts", type=int, default=1, help="the number of keys that each airport is spread over"
    )
    parser.add_argument("--files-per-trigger", type=int, default=1)
    parser.add_argument("--trigger", default="1 second", help="the time between two batches")
    parser.add_argument(
        "--available-now", action="store_true", help="end when all available input has been read"
    )
    args = parser.parse_args()
    if args.salts < 1:
        parser.error("--salts must be at least 1")

    spark = SparkSession.builder.appName("flight_history").getOrCreate()
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    flights = (
        spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", args.files_per_trigger).json(args.input)
    )
    writer = (
        history(flights, args.salts)
        .writeStream.queryName("flight_history")
        .format("parquet")
        .outputMode("append")
        .option("checkpointLocation", args.checkpoint or f"{args.output}.checkpoint")
    )
    writer = (
        writer.trigger(availableNow=True)
        if args.available_now
        else writer.trigger(processingTime=args.trigger)
    )
    try:
        writer.start(args.output).awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
