"""`python -m bench.hot_keys`: what sampling the keys of a query costs (the table `hot_keys` of a job).

The same streaming count by key, with and without, in turn in one Spark session: once over Parquet with one
column, where a row costs next to nothing, and once over JSON, where it must be parsed. The first round warms
up. Compare the ratios: seconds are those of one machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "user string, value long, note string"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m bench.hot_keys", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of a batch")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    parser.add_argument("--sample", type=float, default=0.1, help="the share of rows whose key is counted")
    options = parser.parse_args(argv)
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for kind in ("parquet", "json"):
                print(f"{kind}: {_measured(spark, Path(folder, kind), kind, options)}", flush=True)
    finally:
        spark.stop()
    return 0


def _measured(spark: SparkSession, folder: Path, kind: str, options: argparse.Namespace) -> str:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from streambank_spark.private import key_samples

    user = F.expr("CASE WHEN id % 10 < 4 THEN 'hot' ELSE concat('user', id % 1000) END AS user")
    rows = spark.range(options.rows).select(user, F.col("id").alias("value"), F.lit("x" * 60).alias("note"))
    rows.repartition(4).write.format(kind).save(str(folder / "in"))
    plain = spark.readStream.schema(SCHEMA).format(kind).load(str(folder / "in")).groupBy("user").count()
    dataset, points = key_samples.observed(
        plain, options.sample, salted=key_samples.salted_partitions(plain.sparkSession)
    )
    assert all(one.why is None for one in points), points
    arms = {"without": plain, "with": DataFrame(dataset, spark)}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(options.rounds + 1):
        for name, frame in arms.items():
            took_s = _batch_s(frame, folder / f"{name}-{number}")
            if number:
                seconds[name].append(took_s)
    ratios = [w / o for w, o in zip(seconds["with"], seconds["without"], strict=True)]
    without, sampled = (statistics.median(seconds[name]) for name in ("without", "with"))
    more_us = (sampled - without) / options.rows * 2e6  # of two cores
    return (
        f"{without:.2f} s without, {sampled:.2f} s with; ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}), {more_us:.2f} us of a core for each row"
    )


def _batch_s(frame: DataFrame, checkpoint: Path) -> float:
    """How long the one batch of a query takes."""
    writer = frame.writeStream.outputMode("complete").format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    (progress,) = query.recentProgress
    return float(json.loads(progress.json)["durationMs"]["addBatch"]) / 1000


if __name__ == "__main__":
    raise SystemExit(main())
