"""Small deterministic streaming queries, one for each kind of state, and the layouts Spark keeps it in.

Every query reads numbered JSON files, one file a micro-batch, so a batch has the same rows in every run that
starts from the same offsets. What a batch gave is written by `foreachBatch` as one JSON file a batch; the
stateless query writes to Spark's own file sink instead.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

STATE = "spark.sql.streaming.stateStore."
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

FILES_PER_BATCH = "spark.streambank.tests.filesPerBatch"
"""Conf by which a test changes where the batches are cut."""

EVENT_SCHEMA = "id long, key string, value long, at timestamp"
FIRST_EVENT = datetime(2026, 1, 1, tzinfo=UTC)
BATCH_STEP = timedelta(seconds=10)
"""How far event time moves from one input file to the next."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One way in which Spark keeps state on disk."""

    name: str
    conf: dict[str, str] = field(default_factory=dict)


def _rocksdb(name: str, *, changelog: bool, version: int) -> Layout:
    return Layout(
        name,
        {
            f"{STATE}providerClass": ROCKSDB,
            f"{STATE}rocksdb.changelogCheckpointing.enabled": str(changelog).lower(),
            f"{STATE}checkpointFormatVersion": str(version),
        },
    )


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("hdfs", {f"{STATE}providerClass": HDFS, f"{STATE}checkpointFormatVersion": "1"}),
        _rocksdb("rocksdb", changelog=False, version=1),
        _rocksdb("rocksdb-changelog", changelog=True, version=1),
        _rocksdb("format-v2", changelog=True, version=2),
        _rocksdb("format-v2-snapshots", changelog=False, version=2),
    )
}


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query.

    Attributes:
        build: Makes the streaming DataFrame from the session and the folder of input files.
        layouts: Names of the layouts that Spark allows of.
        file_sink: Written to Spark's file sink (no state) rather than by `foreachBatch`.
        oracle: `undisturbed`: a restored savepoint must go on like a run that was never stopped. `restart`:
            like an ordinary restart after the same batch, because Spark keeps no watermark per source over
            any restart.
    """

    name: str
    build: Callable[[SparkSession, Path], DataFrame]
    output_mode: str = "append"
    layouts: tuple[str, ...] = tuple(LAYOUTS)
    file_sink: bool = False
    oracle: str = "undisturbed"


def write_input(folder: Path, batches: int, *, seed: int = 7, first: int = 0) -> None:
    """Write the input files `first` to `batches` - 1 of both sources: the same for the same seed.

    Each file moves event time on by `BATCH_STEP`, brings some rows late (within the watermark's delay, and a
    few beyond it), and repeats some rows of the file before it. Modification times are a second apart, since
    Spark's file source orders by them.
    """
    for side in ("left", "right"):
        target = folder / side
        target.mkdir(parents=True, exist_ok=True)
        before: list[dict[str, Any]] = []
        for batch in range(batches):
            rng = random.Random(f"{seed} {side} {batch}")
            rows = list(_rows(rng, batch))
            repeated = rng.sample(before, 3) if before else []
            before = rows
            if batch < first:
                continue
            path = target / f"{batch:05d}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *repeated]))
            stamp_s = 1_700_000_000 + batch
            os.utime(path, (stamp_s, stamp_s))


def _rows(rng: random.Random, batch: int, count: int = 12) -> Iterator[dict[str, Any]]:
    for number in range(count):
        late = rng.choice((0, 0, 0, 3, 6, 45))
        at = FIRST_EVENT + BATCH_STEP * batch + timedelta(seconds=rng.randrange(10) - late)
        yield {
            "id": batch * 1000 + number,
            "key": f"k{rng.randrange(15)}",
            "value": rng.randrange(1000),
            "at": at.isoformat(),
        }


def events(session: SparkSession, folder: Path) -> DataFrame:
    """The files of one source as a stream, one file a batch unless the session says otherwise."""
    files = session.conf.get(FILES_PER_BATCH, "1")
    reader = session.readStream.schema(EVENT_SCHEMA).option("maxFilesPerTrigger", str(files))
    return reader.json(str(folder)).withWatermark("at", "15 seconds")


def _aggregation(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    stream = events(session, folder / "left")
    return stream.groupBy(f.window("at", "20 seconds"), "key").agg(
        f.count("*").alias("rows"), f.sum("value").alias("total")
    )


def _session_window(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    stream = events(session, folder / "left")
    return stream.groupBy(f.session_window("at", "9 seconds"), "key").agg(
        f.count("*").alias("rows"), f.sum("value").alias("total")
    )


def _drop_duplicates(session: SparkSession, folder: Path) -> DataFrame:
    return events(session, folder / "left").dropDuplicates(["id", "at"])


def _drop_duplicates_within_watermark(session: SparkSession, folder: Path) -> DataFrame:
    return events(session, folder / "left").dropDuplicatesWithinWatermark(["id"])


def _join(session: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as f

    left = events(session, folder / "left").alias("l")
    right = events(session, folder / "right").alias("r")
    near = f.expr("l.key = r.key AND r.at BETWEEN l.at - INTERVAL 5 SECONDS AND l.at + INTERVAL 5 SECONDS")
    return left.join(right, near, "leftOuter").select(
        f.col("l.id").alias("left_id"), f.col("r.id").alias("right_id"), f.col("l.key"), f.col("l.at")
    )


def _running_total(
    key: tuple[Any, ...], pieces: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    import pandas as pd

    rows, total = state.get if state.exists else (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame({"key": [key[0]], "rows": [rows], "total": [total], "closed": [True]})
        return
    newest_ms = 0
    for piece in pieces:
        rows += len(piece)
        total += int(piece["value"].sum())
        newest_ms = max(newest_ms, int(piece["at"].max().timestamp() * 1000))
    state.update((rows, total))
    state.setTimeoutTimestamp(max(newest_ms, state.getCurrentWatermarkMs()) + 12_000)
    yield pd.DataFrame({"key": [key[0]], "rows": [rows], "total": [total], "closed": [False]})


def _pandas_with_state(session: SparkSession, folder: Path) -> DataFrame:
    grouped = events(session, folder / "left").groupBy("key")
    return grouped.applyInPandasWithState(
        _running_total,
        "key string, rows long, total long, closed boolean",
        "rows long, total long",
        "update",
        "EventTimeTimeout",
    )


def _transform_with_state(session: SparkSession, folder: Path) -> DataFrame:
    from tests.support.spark.stateful_processors import Visits

    grouped = events(session, folder / "left").groupBy("key")
    return grouped.transformWithState(
        Visits(), "key string, rows long, newest long, closed boolean", "append", "EventTime"
    )


def _transform_with_state_in_pandas(session: SparkSession, folder: Path) -> DataFrame:
    from tests.support.spark.stateful_processors import PandasVisits

    grouped = events(session, folder / "left").groupBy("key")
    return grouped.transformWithStateInPandas(
        PandasVisits(), "key string, rows long, newest long, closed boolean", "append", "EventTime"
    )


def _stateless(session: SparkSession, folder: Path) -> DataFrame:
    return (
        events(session, folder / "left").where("value % 3 <> 0").selectExpr("id", "key", "value * 2 AS twice")
    )


_ROCKSDB_ONLY = tuple(name for name in LAYOUTS if name != "hdfs")

QUERIES = {
    query.name: query
    for query in (
        Query("aggregation", _aggregation, "update"),
        Query("session-window", _session_window),
        Query("drop-duplicates", _drop_duplicates),
        Query("drop-duplicates-within-watermark", _drop_duplicates_within_watermark),
        Query("join", _join, oracle="restart"),
        Query("apply-in-pandas-with-state", _pandas_with_state, "update"),
        Query("transform-with-state", _transform_with_state, layouts=_ROCKSDB_ONLY),
        Query("transform-with-state-in-pandas", _transform_with_state_in_pandas, layouts=_ROCKSDB_ONLY),
        Query("stateless", _stateless, layouts=("hdfs",), file_sink=True),
    )
}


def _closed_windows(session: SparkSession, folder: Path) -> DataFrame:
    return _aggregation(session, folder).selectExpr("string(window.start) AS start", "key", "rows", "total")


TO_FILES = {
    query.name: query
    for query in (
        Query("closed-windows", _closed_windows, file_sink=True),
        Query("transform-with-state-to-files", _transform_with_state, layouts=("format-v2",), file_sink=True),
    )
}
"""Queries with state that write to Spark's own file sink."""
