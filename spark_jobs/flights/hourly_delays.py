"""Hourly departures and delays by origin and carrier: an ordinary Structured Streaming application.

    spark-submit hourly_delays.py --input DIR --output DIR [--checkpoint DIR]
    spark-submit hourly_delays.py --kafka HOST:PORT --topic flights --output DIR [--checkpoint DIR]

Departures come as files of JSON lines, or as JSON values of a Kafka topic. Windows of one hour over the
scheduled departure, a watermark, append mode, a Parquet file sink. A window is written once, when the
watermark has passed its end. A departure that is in the topic twice counts twice: write each one once, and
let no partition get further ahead of another one than the watermark delay. The application does not use
Streambank; if Streambank runs it, `--checkpoint` is replaced by the job's current generation.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

FLIGHTS = (
    "event_time TIMESTAMP, origin STRING, carrier STRING, dep_delay_min INT, "
    "temp_f DOUBLE, wind_mph DOUBLE, precip_in DOUBLE, visibility_miles DOUBLE"
)
DELAYED_MIN = 15
"""From how many minutes on a departure counts as delayed."""


def hourly(flights: DataFrame, watermark: str) -> DataFrame:
    """One row for each hour, origin and carrier that has departures."""
    delay = F.col("dep_delay_min")
    return (
        flights.withWatermark("event_time", watermark)
        .groupBy(F.window("event_time", "1 hour"), "origin", "carrier")
        .agg(
            F.count("*").alias("scheduled"),
            F.count(delay).alias("departed"),
            F.count(F.when(delay >= DELAYED_MIN, 1)).alias("delayed"),
            F.sum(delay).alias("delay_min_total"),
            F.max(delay).alias("delay_min_max"),
            # The weather is that of the hour: every departure of a group carries the same.
            F.max("temp_f").alias("temp_f"),
            F.max("wind_mph").alias("wind_mph"),
            F.max("precip_in").alias("precip_in"),
            F.min("visibility_miles").alias("visibility_miles"),
        )
        .select(F.col("window.start").alias("hour"), "*")
        .drop("window")
    )


def from_files(spark: SparkSession, folder: str, files_per_trigger: int) -> DataFrame:
    """Departures from the lines of files that arrive in a directory."""
    reader = spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", files_per_trigger)
    return reader.json(folder)


def from_topic(spark: SparkSession, servers: str, topic: str, records_per_trigger: int) -> DataFrame:
    """Departures from the values of a topic's records, from its beginning; keys are ignored."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_per_trigger)
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), FLIGHTS).alias("flight"))
    return parsed.select("flight.*")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the arguments; end the program if they do not fit together."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="DIR", help="the directory to read files from")
    source.add_argument("--kafka", metavar="HOST:PORT", help="or the servers of the topic to read")
    parser.add_argument("--topic", help="with --kafka: the name of the topic")
    parser.add_argument("--output", required=True)
    parser.add_argument("--checkpoint", help="default: OUTPUT.checkpoint")
    parser.add_argument("--watermark", default="1 hour")
    parser.add_argument("--files-per-trigger", type=int, default=1)
    parser.add_argument("--records-per-trigger", type=int, default=2000)
    parser.add_argument("--trigger", default="1 second", help="the time between two batches")
    parser.add_argument(
        "--available-now", action="store_true", help="end when all available input has been read"
    )
    args = parser.parse_args(argv)
    if (args.kafka is None) != (args.topic is None):
        parser.error("--kafka and --topic go together")
    return args


def main() -> None:
    """Read departures from a directory or a topic, aggregate, append to a directory."""
    args = arguments()
    spark = SparkSession.builder.appName("hourly_delays").getOrCreate()
    flights = (
        from_files(spark, args.input, args.files_per_trigger)
        if args.kafka is None
        else from_topic(spark, args.kafka, args.topic, args.records_per_trigger)
    )
    writer = (
        hourly(flights, args.watermark)
        .writeStream.queryName("hourly_delays")
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
