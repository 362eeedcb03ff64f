"""Departures into a Delta table, each once: also after a driver was killed, and after a restore.

`foreachBatch` appends each batch by delta-rs, without a JVM connector, in one commit with the number of the
batch. A batch that Spark runs again is not written again. `flights_to_delta.toml` declares the table, so a
restore compares it with the savepoint, and `--sink rollback` rolls it back to the savepoint's batch:

    streambank job start flights_to_delta --jobs examples/flights_to_delta.toml
    streambank job savepoint flights_to_delta --jobs examples/flights_to_delta.toml
    streambank restore SAVEPOINT -r .streambank/flights-to-delta/savepoints --job flights_to_delta
        --jobs examples/flights_to_delta.toml --generation --sink rollback

It needs `pip install 'airflow-provider-streambank[delta]'` where the driver runs, and PySpark 4.0 or newer.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

from streambank_spark.delta import write_delta_once

FLIGHTS = "event_time TIMESTAMP, origin STRING, carrier STRING, flight INT, tailnum STRING, dep_delay_min INT"


def main() -> None:
    """Run until the job is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, metavar="DIR", help="where files of JSON lines arrive")
    parser.add_argument("--table", required=True, metavar="DIR", help="the Delta table")
    parser.add_argument("--files-per-batch", type=int, default=10)
    options = parser.parse_args()

    def write(batch: DataFrame, batch_id: int) -> None:
        write_delta_once(batch, batch_id, options.table)

    spark = SparkSession.builder.getOrCreate()
    reader = spark.readStream.schema(FLIGHTS).option("maxFilesPerTrigger", options.files_per_batch)
    writer = reader.json(options.input).writeStream.foreachBatch(write)
    writer.trigger(processingTime="1 second").start().awaitTermination()


if __name__ == "__main__":
    main()
