"""Hourly delays by origin, from Kafka to Kafka: an ordinary Structured Streaming application.

    spark-submit origin_delays.py --kafka HOST:PORT --topic flights --to delays [--checkpoint DIR]

It reads departures as JSON, drops those that were written twice within the watermark, and counts them in
windows of one hour over the scheduled departure. A window is written once, keyed by its origin, when the
watermark has passed its end. The application does not use Streambank; if Streambank runs it, `--checkpoint`
is replaced by the job's current generation.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

FLIGHTS = "event_time TIMESTAMP, origin STRING, carrier STRING, flight INT, tailnum STRING, dep_delay_min INT"
DELAYED_MIN = 15
"""From how many minutes on a departure counts as delayed."""


def origins(records: DataFrame, watermark: str) -> DataFrame:
    """Key and value of one record for each hour and origin with departures."""
    delay = F.col("dep_delay_min")
    return (
        records.select(F.from_json(F.col("value").cast("string"), FLIGHTS).alias("flight"))
        .select("flight.*")
        .withWatermark("event_time", watermark)
        .dropDuplicatesWithinWatermark(["event_time", "origin", "carrier", "flight", "tailnum"])
        .groupBy(F.window("event_time", "1 hour"), "origin")
        .agg(
            F.count("*").alias("scheduled"),
            F.count(delay).alias("departed"),
            F.count(F.when(delay >= DELAYED_MIN, 1)).alias("delayed"),
            F.sum(delay).alias("delay_min_total"),
        )
        .select(
            F.col("origin").alias("key"),
            F.to_json(
                F.struct(
                    F.unix_seconds("window.start").alias("hour_s"),
                    *("origin", "scheduled", "departed", "delayed", "delay_min_total"),
                )
            ).alias("value"),
        )
    )


def main() -> None:
    """Read departures from a topic, aggregate, append to another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--to", required=True, help="the topic to write the hourly delays to")
    parser.add_argument("--checkpoint", help="default: /tmp/origin_delays.checkpoint")
    parser.add_argument("--watermark", default="12 hours")
    parser.add_argument("--records-per-trigger", type=int, default=2000)
    parser.add_argument("--trigger", default="1 second", help="the time between two batches")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("origin_delays").getOrCreate()
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.kafka)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", args.records_per_trigger)
        .load()
    )
    writer = (
        origins(records, args.watermark)
        .writeStream.queryName("origin_delays")
        .format("kafka")
        .outputMode("append")
        .option("kafka.bootstrap.servers", args.kafka)
        .option("topic", args.to)
        .option("checkpointLocation", args.checkpoint or "/tmp/origin_delays.checkpoint")
        .trigger(processingTime=args.trigger)
    )
    try:
        writer.start().awaitTermination()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
