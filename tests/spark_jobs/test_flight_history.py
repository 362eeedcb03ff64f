"""A hot key, from its detection to its cure: files show the partition, Spark the key; a salt spreads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.flights import expected, flight_history, replay
from streambank.sla.skew.report import skew_of_checkpoint
from streambank.sla.skew.skew import StoreSkew
from streambank.storage import open_store
from streambank_spark.programs.inspect_state import inspect_state, parse
from tests.support.spark.sessions import finish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the storms: a minute; the quick suite finds hot keys in recorded checkpoints (test_inspect_state.py).
pytestmark = [pytest.mark.spark, pytest.mark.storm]

PARTITIONS = 5
SALTS = 64
CONF = {
    "spark.sql.streaming.stateStore.providerClass": flight_history.ROCKSDB,
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.session.timeZone": "UTC",
}


@dataclass(frozen=True)
class Run:
    """What one run left: its output, and how its state is spread."""

    rows: list[expected.Row]
    skew: StoreSkew
    checkpoint: Path

    def keys(self, spark: SparkSession, by: str) -> list[dict[str, Any]]:
        arguments = ["--checkpoint", str(self.checkpoint), "--by", by, "--top", "9"]
        (operator,) = inspect_state(spark, parse(arguments))["operators"]
        found: list[dict[str, Any]] = operator["top"]
        return found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flights")
    flights = replay.departures(replay.data_dir())[:1500]
    replay.replay(flights, folder, rows_per_file=750, gap_ms=0, closing=False)
    return folder


def run(spark: SparkSession, source: Path, folder: Path, salts: int) -> Run:
    from pyspark import cloudpickle

    # Spark's Python workers cannot import the application, which spark-submit would run as the main module.
    cloudpickle.register_pickle_by_value(flight_history)  # type: ignore[no-untyped-call]  # vendored, untyped
    session = spark.newSession()
    for key, value in CONF.items():
        session.conf.set(key, value)
    stream = session.readStream.schema(flight_history.FLIGHTS).option("maxFilesPerTrigger", 1)
    history = flight_history.history(stream.json(str(source)), salts)
    output, checkpoint = folder / f"out-{salts}", folder / f"checkpoint-{salts}"
    writer = history.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    finish(lambda: writer.trigger(availableNow=True).start(str(output)))
    (store,) = skew_of_checkpoint(open_store(checkpoint)).stores
    return Run(list(expected.output_rows(output, expected.COLUMNS["flight_history"])), store, checkpoint)


def test_a_hot_airport_is_seen_named_and_cured(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    hot, salted = (run(spark, source, tmp_path, salts) for salts in (1, SALTS))

    due = expected.flight_history(expected.input_rows(source))
    assert expected.compare(due, hot.rows).equal
    assert expected.compare(hot.rows, salted.rows).equal, "the cure changes nothing that is written"
    entries = len({row[:2] for row in due})

    assert hot.skew.rows == salted.skew.rows == entries, "of RocksDB's snapshots each counts its rows"
    assert hot.skew.uneven and hot.skew.skew is not None and hot.skew.skew > 3
    assert "The program inspect_state names the keys" in hot.skew.advice

    largest, second, *_ = hot.keys(spark, "key.airport")
    of_hot = len({row[1] for row in due if row[0] == flight_history.HOT})
    assert (largest["key"], largest["rows"], largest["hot"]) == (flight_history.HOT, of_hot, True)
    assert largest["partitions"] == [hot.skew.largest]
    assert not second["hot"]

    assert not salted.skew.uneven and salted.skew.skew is not None
    assert salted.skew.skew < hot.skew.skew / 2
    assert len(salted.keys(spark, "key.airport")[0]["partitions"]) == PARTITIONS
    assert not any(key["hot"] for key in salted.keys(spark, "key"))
