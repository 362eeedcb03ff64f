"""Rows a second of queries that keep no state, some, and much: the exercise of `docs/guide/throughput.md`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.choices.checkpoints import CHANGELOG, HDFS_BACKED, totals
from bench.choices.trial import STATE, Arm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _windows(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute")).agg(F.sum("n"))


def _in_python(frame: DataFrame) -> DataFrame:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Totals(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.total = handle.getValueState("total", "count bigint, n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
            count, n = self.total.get() or (0, 0)
            for row in rows:
                count, n = count + 1, n + row.n
            self.total.update((count, n))
            yield Row(key=key[0], count=count, n=n)

        def close(self) -> None:
            pass

    return frame.groupBy("key").transformWithState(
        Totals(), "key bigint, count bigint, n bigint", outputMode="Update", timeMode="None"
    )


def throughput(folder: Path) -> list[Arm]:
    """From no state to much; the first is what the others are compared with.

    Args:
        folder: Where the arm without state writes what each batch adds.
    """
    from pyspark.sql import functions as F

    def added(batch: DataFrame, number: int) -> None:
        sums = batch.groupBy("key").agg(F.count("*").alias("count"), F.sum("n").alias("n"))
        sums.write.mode("overwrite").parquet(str(folder / f"added/batch={number}"))

    hdfs = {f"{STATE}providerClass": HDFS_BACKED}
    return [
        Arm("no state: filter and map", lambda frame: frame.where("n > 10"), mode="append"),
        Arm("no state: sums of each batch to a table", lambda frame: frame, mode="append", write=added),
        Arm("little state: windows of a minute", _windows),
        Arm("total of each key, HDFS-backed", totals, hdfs),
        Arm("total of each key, RocksDB", totals),
        Arm("total of each key, RocksDB with changelog", totals, CHANGELOG),
        Arm("total of each key, `transformWithState` in Python", _in_python, CHANGELOG),
    ]
