"""Versions of small queries that differ in what they keep, for the rules by which Spark compares schemas."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from tests.support.spark.queries import HDFS, ROCKSDB, STATE, Query
from tests.support.spark.sessions import ATTEMPTS, END_S, LATE_WORKER, Batches
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "id long, key string, value int"
ON_HDFS = {f"{STATE}providerClass": HDFS}
UNSAFE = {f"{STATE}providerClass": ROCKSDB, f"{STATE}encodingFormat": "unsaferow"}
AVRO = {**UNSAFE, f"{STATE}encodingFormat": "avro"}


def write_file(folder: Path, number: int) -> None:
    """One more file of input: ten rows of five keys."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"id": number * 10 + n, "key": f"k{n % 5}", "value": n} for n in range(10)]
    (folder / f"{number:03d}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def pickle_by_value() -> None:
    """Let the functions here travel to Spark's Python workers, which cannot import the tests."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # vendored


def run_a_batch(session: SparkSession, query: Query, place: Path) -> None:
    """Run a query on `place/in` and `place/checkpoint` until its next batch is committed.

    Not until all input is read: with a time mode, a transformWithState has another batch for ever.

    Raises:
        StreamingQueryException: Spark refused it, or it failed.
        AssertionError: It did not get there in time.
    """
    commits = place / "checkpoint/commits"
    wanted = commits / str(len(list(commits.glob("[0-9]*"))))
    output = place / "out"
    output.mkdir(exist_ok=True)
    for attempt in range(ATTEMPTS):
        writer = query.build(session, place / "in").writeStream.outputMode(query.output_mode)
        writer = writer.option("checkpointLocation", str(place / "checkpoint")).foreachBatch(Batches(output))
        failed = _first_batch(writer.start(), wanted)
        if failed is None:
            return
        if LATE_WORKER not in str(failed) or attempt == ATTEMPTS - 1:
            raise failed


def _first_batch(running: StreamingQuery, commit: Path) -> Exception | None:
    try:
        wait_for("the batch", lambda: commit.exists() or not running.isActive, END_S)
        return running.exception()
    finally:
        running.stop()


def _rows(session: SparkSession, folder: Path) -> DataFrame:
    return session.readStream.schema(SCHEMA).json(str(folder))


def _sums(key: Mapping[str, Any], *values: Any) -> Callable[[SparkSession, Path], DataFrame]:
    def build(session: SparkSession, folder: Path) -> DataFrame:
        keys = [column.alias(name) for name, column in key.items()]
        return _rows(session, folder).groupBy(*keys).agg(*values)

    return build


def _sums_of_distinct(session: SparkSession, folder: Path) -> DataFrame:
    rows = _rows(session, folder).dropDuplicates(["id"])
    return rows.groupBy("key").agg(F.count("*"), F.sum("value"))


class Keeper(StatefulProcessor):
    """Keeps what a version says: variables by name, each with its kind, its columns and perhaps a TTL."""

    def __init__(self, *variables: tuple[str, str, str, int | None]) -> None:
        self._declared = variables

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept: list[tuple[str, str, Any]] = []
        for name, kind, columns, ttl_ms in self._declared:
            if kind == "value":
                state: Any = handle.getValueState(name, columns, ttl_ms)
            elif kind == "list":
                state = handle.getListState(name, columns, ttl_ms)
            else:
                state = handle.getMapState(name, "m string", columns, ttl_ms)
            self._kept.append((kind, columns, state))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        from pyspark.sql import Row

        list(rows)
        for kind, columns, state in self._kept:
            row = tuple("1" if "string" in one else 1 for one in columns.split(","))
            if kind == "value":
                state.update(row)
            elif kind == "list":
                state.put([row])
            else:
                state.updateValue(("m",), row)
        yield Row(key=key[0])

    def close(self) -> None:
        """Nothing is held."""


def _keeps(*variables: tuple[str, str, str, int | None], time_mode: str = "None") -> Any:
    def build(session: SparkSession, folder: Path) -> DataFrame:
        grouped = _rows(session, folder).groupBy("key")
        return grouped.transformWithState(Keeper(*variables), "key string", "update", time_mode)

    return build


def _value(columns: str, ttl_ms: int | None = None) -> tuple[str, str, str, int | None]:
    return ("kept", "value", columns, ttl_ms)


def versions() -> dict[str, Query]:
    """All versions by name; columns can only be made where there is a session."""
    key = {"key": F.col("key")}
    count, total = F.count("*"), F.sum("value")
    made: dict[str, Callable[[SparkSession, Path], DataFrame]] = {
        "sums": _sums(key, count, total),
        "other aliases": _sums(key, count.alias("n"), total.alias("t")),
        "value added": _sums(key, count, total, F.max("value")),
        "value dropped": _sums(key, count),
        "value of another type": _sums(key, count, F.sum(F.col("value").cast("double"))),
        "key renamed": _sums({"name": F.col("key")}, count, total),
        "key added": _sums({**key, "id": F.col("id")}, count, total),
        "key of another type": _sums({"key": F.substring("key", 2, 9).cast("long")}, count, total),
        "key never null": _sums({"key": F.coalesce("key", F.lit(""))}, count, total),
        "distinct": lambda session, folder: _rows(session, folder).dropDuplicates(["key"]),
        "distinct by two": lambda session, folder: _rows(session, folder).dropDuplicates(["key", "id"]),
        "distinct of less": lambda session, folder: (
            _rows(session, folder).select("key", "id").dropDuplicates(["key"])
        ),
        "two operators": _sums_of_distinct,
        "none": lambda session, folder: _rows(session, folder),
        "one value": _keeps(_value("a int, b long")),
        "column added": _keeps(_value("a int, b long, c string")),
        "column dropped": _keeps(_value("a int")),
        "column renamed": _keeps(_value("a int, other long")),
        "column widened": _keeps(_value("a long, b long")),
        "column narrowed": _keeps(_value("a int, b int")),
        "column of another type": _keeps(_value("a int, b string")),
        "columns turned round": _keeps(_value("b long, a int")),
        "a list": _keeps(("kept", "list", "a int, b long", None)),
        "variable added": _keeps(_value("a int, b long"), ("more", "map", "c long", None)),
        "variable renamed": _keeps(("other", "value", "a int, b long", None)),
        "timed": _keeps(_value("a int, b long"), time_mode="ProcessingTime"),
        "with a ttl": _keeps(_value("a int, b long", 3_600_000), time_mode="ProcessingTime"),
    }
    return {
        name: Query(name, build, "append" if name == "none" else "update") for name, build in made.items()
    }
