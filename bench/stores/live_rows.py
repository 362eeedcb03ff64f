"""How many rows live at once in a query with windows, beside what `streambank plan-memory` estimates.

    python -m bench.stores.live_rows FOLDER

Event time advances with the batches. One line of JSON comes out: for each case the rows of its last batches.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from streambank.advice.request import LoadRequest

BATCH_S = 120.0
"""Event time that a batch brings."""
WARM, WATCHED = 20, 20
"""Batches until no more rows live than before, and those that are counted."""
EVENTS_PER_S = 40.0
KEYS = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """A query.

    Attributes:
        title: What the page calls it.
        window_s: Length of its windows; 0 for `dropDuplicatesWithinWatermark`, with the watermark's delay.
        slide_s: How far the next one begins after one.
        watermark_s: The delay of its watermark.
    """

    title: str
    window_s: float
    slide_s: float
    watermark_s: float

    @property
    def load(self) -> LoadRequest:
        """As the estimator has it."""
        rate = LoadRequest(events_per_second=EVENTS_PER_S, trigger_s=BATCH_S)
        if not self.window_s:
            return replace(rate, dedup_s=self.watermark_s)
        return replace(rate, window_s=self.window_s, slide_s=self.slide_s, watermark_s=self.watermark_s)


CASES = (
    Case("windows of 10 min, a watermark of 10 min", 600, 600, 600),
    Case("windows of 10 min every 5 min, a watermark of 5 min", 600, 300, 300),
    Case("`dropDuplicatesWithinWatermark` of 10 min", 0, 0, 600),
)


def main(folder: Path, say: Callable[[str], None] = lambda text: None) -> list[list[int]]:
    """Run each case, and count the rows of its last batches."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from bench.stores.kinds import KINDS
    from bench.stores.rows import SCHEMA, write_rows

    source = folder / "live-rows"
    source.mkdir(parents=True)
    for number in range(WARM + WATCHED):
        span = (number * BATCH_S, (number + 1) * BATCH_S)
        write_rows(source / f"{number:03d}.parquet", int(BATCH_S * EVENTS_PER_S), KEYS, span)
    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **KINDS["rocksdb-changelog"].conf,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    found = []
    for number, case in enumerate(CASES):
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
        rows = files.withWatermark("at", f"{case.watermark_s:g} seconds")
        if case.window_s:
            window = F.window("at", f"{case.window_s:g} seconds", f"{case.slide_s:g} seconds")
            rows = rows.groupBy(window, "id").count()
        else:
            rows = rows.dropDuplicatesWithinWatermark(["id"])
        writer = rows.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(folder / f"live-rows-{number}")).start()
        query.awaitTermination()
        reported = [json.loads(one.json) for one in query.recentProgress]
        every = [one["stateOperators"][0]["numRowsTotal"] for one in reported if one["numInputRows"]]
        found.append(every[-WATCHED:])
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))), flush=True)
