"""Departures and delays of each airport, in three versions: an application whose state changes as it grows.

    spark-submit delay_statistics.py --input DIR --output DIR --version N [--initial-state DIR --after FILE]

1. counts the departures of an airport.
2. also adds up their delays: a column is added to the state. The state is encoded as Avro from version 1 on,
   so Spark accepts this: version 2 goes on from the checkpoint of version 1, and in rows that were stored
   before, the new column is null.
3. keeps the mean delay in seconds instead of the sum in minutes: another type and another meaning, which
   Spark's rules for schemas do not cover. It begins with a new checkpoint. Its initial state is the state of
   version 2, exported by `streambank state export`. `--after` names the last file that version 2 has read:
   files up to that one are skipped.

docs/howto/migrate-state.md explains each step. The application does not use Streambank.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

FLIGHTS = "event_time TIMESTAMP, origin STRING, flight INT, dep_delay_min INT"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONF = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    # Fixed by the first batch of a checkpoint: what begins without it can never add a column.
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
}
STATISTICS = "statistics"
"""The state variable."""


def columns(kept: Mapping[str, str]) -> str:
    """Columns by name and type, as Spark reads them."""
    return ", ".join(f"{name} {kind}" for name, kind in kept.items())


class Departures(StatefulProcessor):
    """Version 1: counts the departures of one airport."""

    KEPT: ClassVar[Mapping[str, str]] = {"departures": "BIGINT"}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variable."""
        self._kept = handle.getValueState(STATISTICS, columns(self.KEPT))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        """Return one row for the airport: its statistics with these departures."""
        kept = self._kept.get() if self._kept.exists() else None
        known = self.add(kept, [row.dep_delay_min or 0 for row in rows])
        self._kept.update(known)
        yield Row(airport=key[0], **dict(zip(self.KEPT, known, strict=True)))

    def add(self, kept: Any, delays_min: list[int]) -> tuple[Any, ...]:
        """The statistics after some more departures; `kept` is None for the first ones."""
        return ((kept[0] if kept else 0) + len(delays_min),)

    def close(self) -> None:
        """Nothing to close."""


class Delays(Departures):
    """Version 2: adds up their delays, too, from when it began."""

    KEPT: ClassVar[Mapping[str, str]] = {"departures": "BIGINT", "delay_min": "BIGINT"}

    def add(self, kept: Any, delays_min: list[int]) -> tuple[Any, ...]:
        """As in version 1; in rows that version 1 stored, the sum is null."""
        departures, delay_min = kept or (0, 0)
        return departures + len(delays_min), (delay_min or 0) + sum(delays_min)


class MeanDelay(Departures):
    """Version 3: keeps the mean delay, in seconds."""

    KEPT: ClassVar[Mapping[str, str]] = {"departures": "BIGINT", "mean_delay_s": "DOUBLE"}

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Convert the airport's state of version 2; Spark calls this before any row."""
        departures, delay_min = initialState.departures, initialState.delay_min or 0
        self._kept.update((departures, 60.0 * delay_min / departures))

    def add(self, kept: Any, delays_min: list[int]) -> tuple[Any, ...]:
        """The mean of all departures; those that version 1 counted without a delay count as on time."""
        departures, mean_delay_s = kept or (0, 0.0)
        total = departures + len(delays_min)
        return total, (mean_delay_s * departures + 60.0 * sum(delays_min)) / total


VERSIONS: dict[int, type[Departures]] = {1: Departures, 2: Delays, 3: MeanDelay}


def statistics(flights: DataFrame, version: int, initial: DataFrame | None = None) -> DataFrame:
    """One row for each airport and batch in which it has departures.

    Args:
        flights: Departures; the record that closes a replay is left out.
        version: One of `VERSIONS`.
        initial: The column `airport` and those that version 2 keeps, with a row for each airport.
    """
    processor = VERSIONS[version]
    departures = flights.where("flight IS NOT NULL").select(F.col("origin").alias("airport"), "dep_delay_min")
    return departures.groupBy("airport").transformWithState(
        statefulProcessor=processor(),
        outputStructType=f"airport STRING, {columns(processor.KEPT)}",
        outputMode="Update",
        timeMode="None",
        initialState=None if initial is None else initial.groupBy("airport"),
    )


def exported(spark: SparkSession, folder: str) -> DataFrame:
    """The state variable as `streambank state export` has written it, as rows for `statistics`."""
    return spark.read.parquet(f"{folder}/0-{STATISTICS}").select("key.airport", "value.*")


def unread(flights: DataFrame, after: str) -> DataFrame:
    """The rows of files with names after that of a file that was read."""
    return flights.where(F.col("_metadata.file_name") > after)


def main() -> None:
    """Read departures from a directory, keep statistics, write them as JSON files, one folder per batch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", help="default: OUTPUT.checkpoint")
    parser.add_argument("--version", type=int, choices=sorted(VERSIONS), default=max(VERSIONS))
    parser.add_argument("--initial-state", metavar="DIR", help="an export of the state of version 2")
    parser.add_argument(
        "--after", metavar="FILE", help="the name of the last input file whose rows are in --initial-state"
    )
    args = parser.parse_args()
    if (args.initial_state is None) is not (args.after is None) or (args.after and args.version != 3):
        parser.error("--initial-state and --after go together, and need --version 3")

    spark = SparkSession.builder.appName("delay_statistics").getOrCreate()
    for name, value in CONF.items():
        spark.conf.set(name, value)
    flights = spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", 1).json(args.input)
    initial = None
    if args.after is not None:
        flights, initial = unread(flights, args.after), exported(spark, args.initial_state)

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").json(f"{args.output}/{batch}")

    writer = statistics(flights, args.version, initial).writeStream.queryName("delay_statistics")
    writer = writer.outputMode("update").trigger(availableNow=True).foreachBatch(write)
    try:
        checkpoint = args.checkpoint or f"{args.output}.checkpoint"
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
