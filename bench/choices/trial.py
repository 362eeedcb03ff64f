"""One way of doing a thing, as a query over the same rows as all others, and what it took."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BASE = {
    f"{STATE}providerClass": ROCKSDB,
    f"{STATE}maintenanceInterval": "5s",
    f"{STATE}encodingFormat": "unsaferow",
    f"{STATE}rocksdb.changelogCheckpointing.enabled": "false",
    f"{STATE}rocksdb.compression": "lz4",
    f"{STATE}compression.codec": "lz4",
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.shuffle.partitions": "2",
}
"""What each arm begins with: settings of the session that an arm before it may have changed."""
SCHEMA = "key bigint, n bigint, at timestamp"
WARM_BATCHES = 1
"""Batches at the beginning that do not count: they load classes, start workers and open stores."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way.

    Attributes:
        name: What the page calls it.
        build: Makes the query from the rows, whose columns are those of `SCHEMA`.
        conf: Settings beside `BASE`.
        mode: The output mode.
        files: Input files in a batch.
        place: Where its checkpoint is, if that is not a folder beside its input.
        room: What is below a location there; nothing is known of files elsewhere without it.
        write: Writes a batch, by `foreachBatch`; nothing is written if it is left out.
    """

    name: str
    build: Callable[[DataFrame], DataFrame]
    conf: Mapping[str, str] = field(default_factory=dict)
    mode: str = "update"
    files: int = 1
    place: str | None = None
    room: Callable[[str], tuple[int, int]] | None = None
    write: Callable[[DataFrame, int], None] | None = None

    def at(self, number: int) -> Arm:
        """The same in a round: with a checkpoint that no other round has."""
        return replace(self, place=f"{self.place}-{number}") if self.place else self


@dataclass(frozen=True, slots=True)
class Took:
    """What a query took.

    Attributes:
        batch_ms: The median of its batches, in milliseconds.
        rows_per_s: Rows of all counted batches by their time.
        state_bytes: The state's files, at the end; 0 where the checkpoint cannot be listed.
        state_files: How many those are.
        checkpoint_bytes: All files of the checkpoint, at the end.
        written_bytes: What a row added to the checkpoint in the counted batches, in bytes a batch, before
            Spark deletes what is old; 0 where the checkpoint cannot be listed.
    """

    batch_ms: float
    rows_per_s: float
    state_bytes: int
    state_files: int
    checkpoint_bytes: int
    written_bytes: float

    @property
    def per_row_ms(self) -> float:
        """Milliseconds for a row: batches of several files compare by it."""
        return 1000 / self.rows_per_s


def rows(spark: SparkSession, folder: Path, *, keys: int, files: int, per_file: int) -> Path:
    """Parquet files of rows: the first holds each key once, the others keys at random.

    Args:
        spark: A session.
        folder: Where to write them.
        keys: How many there are.
        files: How many files.
        per_file: Rows in each but the first.
    """
    for number in range(files):
        count = keys if number == 0 else per_file
        key = "id" if number == 0 else f"pmod(xxhash64(id, {number}), {keys})"
        frame = spark.range(count).selectExpr(
            f"{key} as key",
            "id % 1000 as n",
            f"timestamp_seconds(1767225600 + {number} * 60 + id % 60) as at",
        )
        part = folder / f"part-{number}"
        frame.coalesce(1).write.parquet(str(part))
        (file,) = part.glob("*.parquet")
        file.rename(folder / f"{number:06d}.parquet")
        shutil.rmtree(part)
        time.sleep(0.01)  # Spark reads in the order of modification times
    return folder


def run(spark: SparkSession, arm: Arm, source: Path, folder: Path) -> Took:
    """Run an arm over all rows, batch after batch.

    Raises:
        pyspark.errors.StreamingQueryException: The query failed.
    """
    for name, value in {**BASE, **arm.conf}.items():
        spark.conf.set(name, value)
    checkpoint = arm.place or str(folder / "checkpoint")
    room = arm.room if arm.place else local_room
    sizes: dict[int, int] = {}

    def wrote(batch: DataFrame, number: int) -> None:
        if arm.write is not None:
            arm.write(batch, number)
        else:
            batch.write.format("noop").mode("overwrite").save()
        sizes[number] = room(checkpoint)[0] if room else 0

    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", arm.files).parquet(str(source))
    writer = arm.build(stream).writeStream.outputMode(arm.mode).foreachBatch(wrote)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    progress: list[dict[str, Any]] = [json.loads(one.json) for one in query.recentProgress]
    for name in arm.conf:
        spark.conf.unset(name)
    counted = [one for one in progress if one["numInputRows"] and one["batchId"] >= WARM_BATCHES]
    times = [float(one["durationMs"]["triggerExecution"]) for one in counted]
    state_bytes, state_files = room(f"{checkpoint}/state") if room else (0, 0)
    written = [
        sizes[number] - sizes[number - 1] for number in sorted(sizes) if number - 1 in sizes and number > 1
    ]
    return Took(
        statistics.median(times),
        sum(one["numInputRows"] for one in counted) / (sum(times) / 1000),
        state_bytes,
        state_files,
        room(checkpoint)[0] if room else 0,
        statistics.median(written) if written else 0.0,
    )


def local_room(folder: str) -> tuple[int, int]:
    """Bytes and number of files below a folder; a file that goes away meanwhile does not count."""
    sizes = []
    for path in Path(folder).rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                sizes.append(path.stat().st_size)
    return sum(sizes), len(sizes)


def interleaved(
    arms: Sequence[Arm], rounds: int, once: Callable[[Arm, int], Took], say: Callable[[str], None]
) -> dict[str, list[Took]]:
    """Each arm once in each round, in an order that turns: what each took, by its name."""
    found: dict[str, list[Took]] = {arm.name: [] for arm in arms}
    for number in range(rounds):
        turned = [*arms[number % len(arms) :], *arms[: number % len(arms)]]
        for arm in turned:
            took = once(arm, number)
            found[arm.name].append(took)
            say(f"round {number + 1} of {rounds}: {arm.name}: {took.batch_ms:,.0f} ms a batch")
    return found
