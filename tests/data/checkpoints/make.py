"""Make the checkpoints of this folder: small real ones, of each layout, by the Spark that runs this file.

`make.sh` runs it under each Spark version in a separate virtual environment. An archive
`<spark>/<cell>.tar.xz` holds `input/`, `checkpoint/` and `expected.json` (batch -> rows that the batch gave,
in sorted order; -1 -> all rows of a file sink).
The tests build the same query again (`build`) to continue a restored copy.
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAMING = "spark.sql.streaming."
STORE = STREAMING + "stateStore."
ROCKSDB = {
    STORE + "providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
}
CHANGELOG = ROCKSDB | {STORE + "rocksdb.changelogCheckpointing.enabled": "true"}
IDS = {STORE + "checkpointFormatVersion": "2"}
ZSTD = {STORE + "compression.codec": "zstd"}
JOIN_V3 = {STREAMING + "join.stateFormatVersion": "3"}
BASE_TIME = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Cell:
    """One checkpoint: which query, with which layout of its state.

    Attributes:
        query: A key of `QUERIES`.
        conf: Settings of the session on top of the common ones.
        files: How many input files there are, which is how many batches read data.
        since: The oldest Spark that can make it.
        only: The versions that make it, to keep the folder small; all that can where empty.
        runs: In how many runs of the query the files are read.
    """

    query: str
    conf: dict[str, str] = field(default_factory=dict)
    files: int = 13
    since: tuple[int, int] = (3, 5)
    only: tuple[str, ...] = ()
    runs: int = 1


CELLS = {
    "hdfs-window": Cell("window"),
    "hdfs-global": Cell("global", files=4),
    "hdfs-limit": Cell("limit", files=4, only=("3.5", "4.3")),
    "hdfs-dedup": Cell("dedup", only=("3.5", "4.3"), files=8),
    "hdfs-chain": Cell("chain", only=("3.5", "4.3"), files=8),
    "hdfs-session": Cell("session", only=("3.5", "4.3"), files=8),
    "hdfs-join": Cell("join", only=("3.5", "4.3"), files=8),
    "hdfs-pandas-state": Cell("pandas-state", only=("3.5", "4.3"), files=6),
    "hdfs-empty-state": Cell("empty", files=3, only=("4.3",)),
    "hdfs-short": Cell(
        "window",
        {STREAMING + "minBatchesToRetain": "2", STREAMING + "ratioExtraSpaceAllowedInCheckpoint": "0"},
        only=("4.3",),
    ),
    "rocksdb-window": Cell("window", ROCKSDB, files=7),
    "rocksdb-changelog-window": Cell("window", CHANGELOG),
    "rocksdb-changelog-within": Cell("within", CHANGELOG, only=("3.5", "4.3"), files=8),
    "rocksdb-limit": Cell("limit", ROCKSDB, files=4, only=("3.5",)),
    "rocksdb-session": Cell("session", ROCKSDB, only=("3.5",), files=8),
    "rocksdb-changelog-join": Cell("join", CHANGELOG, only=("3.5",), files=8),
    "rocksdb-empty-state": Cell("empty", ROCKSDB, files=3, only=("4.3",)),
    "rocksdb-changelog-join3": Cell("join", CHANGELOG | JOIN_V3, since=(4, 0), files=8, only=("4.3",)),
    "rocksdb-repartitioned": Cell("repartition", ROCKSDB, files=4, only=("4.3",)),
    "rocksdb-transform": Cell("transform", ROCKSDB, since=(4, 0), files=4, runs=2),
    "rocksdb-changelog-transform": Cell("transform", CHANGELOG, since=(4, 0), files=8, only=("4.3",)),
    "ids-window": Cell("window", ROCKSDB | IDS, since=(4, 0), files=7),
    "ids-changelog-window": Cell("window", CHANGELOG | IDS, since=(4, 0)),
    "ids-changelog-zstd": Cell("window", CHANGELOG | IDS | ZSTD, since=(4, 0), files=8, only=("4.3",)),
    "ids-changelog-join": Cell("join", CHANGELOG | IDS, since=(4, 0), files=8, only=("4.3",)),
    "ids-changelog-join3": Cell("join", CHANGELOG | IDS | JOIN_V3, since=(4, 0), files=8, only=("4.3",)),
    "ids-changelog-transform": Cell("transform", CHANGELOG | IDS, since=(4, 0), files=8),
    "ids-global": Cell("global", ROCKSDB | IDS, since=(4, 0), files=4, only=("4.3",)),
    "stateless": Cell("stateless"),
    "stateless-offsets2": Cell(
        "stateless", {STREAMING + "offsetLog.formatVersion": "2"}, since=(4, 2), files=4, only=("4.3",)
    ),
    "file-sink": Cell("file-sink", only=("3.5", "4.3")),
    "stateless-rate": Cell("rate", files=2, only=("4.3",)),
    "stateless-async": Cell("async", files=6, only=("4.3",)),
}


def cells_of(version: str) -> list[str]:
    """Names of the cells that a Spark version makes."""
    number = tuple(int(part) for part in version.split(".")[:2])
    return [
        name
        for name, cell in CELLS.items()
        if number >= cell.since and (not cell.only or ".".join(version.split(".")[:2]) in cell.only)
    ]


def session(cell: Cell, warehouse: Path) -> SparkSession:
    """A session with a cell's settings; a running one takes them over."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("checkpoints")
    common = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
        STORE + "minDeltasForSnapshot": "4",
        STORE + "maintenanceInterval": "100ms",
        STREAMING + "noDataMicroBatches.enabled": "true",
    }
    for key, value in (common | cell.conf).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for key in {key for other in CELLS.values() for key in other.conf} - cell.conf.keys():
        spark.conf.unset(key)
    return spark


def write_input(cell: Cell, folder: Path, start: int = 0, stop: int | None = None) -> None:
    """The input files of a cell: 6 rows each, 10 minutes of event time a file, one file a batch."""
    for side in ("left", "right"):
        (folder / side).mkdir(parents=True, exist_ok=True)
    for number in range(start, cell.files if stop is None else stop):
        for side, shift in (("left", 0), ("right", 3)):
            rows = []
            for row in range(6):
                time = BASE_TIME + datetime.timedelta(minutes=10 * number + row)
                key = f"k{(number * 5 + row * (2 if side == 'right' else 1) + shift) % 7}"
                rows.append({"k": key, "v": number * 10 + row, "t": time.isoformat(), "side": side})
            path = folder / side / f"{number:03d}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            stamp = int(BASE_TIME.timestamp()) + number * 60
            os.utime(path, (stamp, stamp))


def _read(spark: SparkSession, folder: Path, side: str = "left") -> DataFrame:
    return (
        spark.readStream.schema("k string, v int, t timestamp, side string")
        .option("maxFilesPerTrigger", 1)
        .option("fileNameOnly", "true")
        .json(str(folder / side))
    )


def _count_states(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas as pd

    seen = state.get[0] if state.exists else 0
    for frame in frames:
        seen += len(frame)
    state.update((seen,))
    yield pd.DataFrame({"k": [key[0]], "n": [seen]})


def _processor() -> Any:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "n int")
            self.last = handle.getMapState("last", "side string", "v int")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            seen = self.seen.get()[0] if self.seen.exists() else 0
            top = 0
            for frame in rows:
                seen += len(frame)
                top = max(top, int(frame["v"].max()))
            self.seen.update((seen,))
            self.last.updateValue(("left",), (top,))
            yield pd.DataFrame({"k": [key[0]], "n": [seen], "top": [top]})

        def close(self) -> None:
            pass

    return Counter()


def build(spark: SparkSession, query: str, folder: Path) -> tuple[DataFrame, str]:
    """A query over an input folder, and its output mode."""
    from pyspark.sql import functions as f

    left = _read(spark, folder)
    late = left.withWatermark("t", "15 minutes")
    if query in ("stateless", "async", "file-sink"):
        return left.select("k", "v", (f.col("v") * 2).alias("w")), "append"
    if query == "rate":
        return spark.readStream.format("rate").option("rowsPerSecond", 5).load().select("value"), "append"
    if query in ("window", "repartition"):
        grouped = late.groupBy(f.window("t", "20 minutes"), "k").agg(f.sum("v").alias("s"))
        return grouped.select(f.col("window.start").cast("string").alias("w"), "k", "s"), "append"
    if query == "global":
        return left.groupBy().agg(f.sum("v").alias("s"), f.count("*").alias("n")), "complete"
    if query == "limit":
        return left.select("k", "v").limit(15), "append"
    if query == "dedup":
        return late.dropDuplicates(["k", "t"]).select("k", "v"), "append"
    if query == "within":
        return late.dropDuplicatesWithinWatermark(["k"]).select("k", "v"), "append"
    if query == "empty":
        return left.where("v < 0").groupBy("k").count(), "update"
    if query == "chain":
        grouped = late.dropDuplicates(["k", "t"]).groupBy(f.window("t", "20 minutes")).count()
        return grouped.select(f.col("window.start").cast("string").alias("w"), "count"), "append"
    if query == "session":
        grouped = late.groupBy(f.session_window("t", "5 minutes"), "k").agg(f.sum("v").alias("s"))
        return grouped.select(f.col("session_window.start").cast("string").alias("w"), "k", "s"), "append"
    if query == "join":
        other = _read(spark, folder, "right").withWatermark("t", "15 minutes")
        other = other.select(f.col("k").alias("rk"), f.col("v").alias("rv"), f.col("t").alias("rt"))
        near = f.expr("k = rk AND rt BETWEEN t - interval 10 minutes AND t + interval 10 minutes")
        return late.join(other, near).select("k", "v", "rv"), "append"
    if query == "pandas-state":
        counted = left.groupBy("k").applyInPandasWithState(
            _count_states, "k string, n int", "n int", "update", "NoTimeout"
        )
        return counted, "update"
    if query == "transform":
        counted = left.groupBy("k").transformWithStateInPandas(
            _processor(), "k string, n int, top int", "Update", "None"
        )
        return counted, "update"
    raise ValueError(query)


def run(spark: SparkSession, query: str, folder: Path, checkpoint: Path) -> dict[int, list[Any]]:
    """Run a query over all there is, and give the rows of each batch it ran, sorted."""
    frame, mode = build(spark, query, folder)
    batches: dict[int, list[Any]] = {}

    def keep(part: DataFrame, batch: int) -> None:
        batches[batch] = sorted((row.asDict() for row in part.collect()), key=lambda row: json.dumps(row))

    writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint))
    if query == "async":
        writer = writer.format("noop").option("asyncProgressTrackingEnabled", "true")
        writer = writer.option("asyncProgressTrackingCheckpointIntervalMs", "600000")
        running = writer.trigger(processingTime="0 seconds").start()
        running.processAllAvailable()
        running.stop()
        return {}
    if query == "file-sink":
        writer.format("json").trigger(availableNow=True).start(
            str(folder.parent / "output")
        ).awaitTermination()
        rows = spark.read.schema("k string, v int, w int").json(str(folder.parent / "output")).collect()
        return {-1: sorted((row.asDict() for row in rows), key=lambda row: json.dumps(row))}
    if query == "rate":
        running = writer.foreachBatch(keep).trigger(processingTime="1 second").start()
        while not running.awaitTermination(1) and len(batches) < 3:
            continue
        running.stop()
        return {}
    running = writer.foreachBatch(keep).trigger(availableNow=True).start()
    running.awaitTermination()
    return batches


def pack(folder: Path, archive: Path) -> None:
    """Pack a cell's folder, sorted, with the files' times, and without owners."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                member = tar.gettarinfo(path, str(path.relative_to(folder)))
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mtime = int(member.mtime)
                tar.addfile(member, io.BytesIO(path.read_bytes()))


def main() -> None:
    """Make the cells that are named, or all that this Spark can make."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    import pyspark

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--ids", action="store_true", help="the cells of checkpoint format v2 only")
    parser.add_argument("cells", nargs="*")
    options = parser.parse_args()
    for name in options.cells or cells_of(pyspark.__version__):
        cell = CELLS[name]
        if not options.cells and options.ids != name.startswith("ids-"):
            continue
        folder = options.work / pyspark.__version__ / name
        shutil.rmtree(folder, ignore_errors=True)
        spark = session(cell, folder.parent / "warehouse")
        batches: dict[int, list[Any]] = {}
        for part in range(cell.runs):
            write_input(cell, folder / "input", stop=cell.files * (part + 1) // cell.runs)
            batches |= run(spark, cell.query, folder / "input", folder / "checkpoint")
        if cell.query == "repartition":
            spark._streamingCheckpointManager.repartition(str(folder / "checkpoint"), 1)
        (folder / "expected.json").write_text(json.dumps(batches, indent=1, sort_keys=True))
        pack(folder, options.out / pyspark.__version__ / f"{name}.tar.xz")
        print(name, len(batches), "batches", flush=True)


if __name__ == "__main__":
    main()
