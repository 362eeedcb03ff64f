"""Real queries told to end at random moments: what is planned is committed, always."""

from __future__ import annotations

import functools
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank_spark.private.boundary import finish_batch_then_end
from streambank_spark.private.jvm import wait_ended
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def batches(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*"))


def told(query: Any) -> str:
    """What came of telling a query to end, tried until it was a moment for it."""

    def look() -> str | None:
        outcome = finish_batch_then_end(query)
        return None if outcome == "not-now" else outcome

    return str(wait_for("a moment for it", look, 60))


def committed_more(checkpoint: Path, before: int) -> bool:
    return len(batches(checkpoint / "commits")) > before


def start(spark: SparkSession, checkpoint: Path, trigger: str) -> Any:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = (
        rows.groupBy((rows.value % 3).alias("key")).count().writeStream.outputMode("complete").format("noop")
    )
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=trigger).start()


def end_at_random_moments(spark: SparkSession, checkpoint: Path, rounds: int, seed: int) -> set[str]:
    chance = random.Random(seed)
    outcomes = set()
    for _ in range(rounds):
        before = len(batches(checkpoint / "commits"))
        query = start(spark, checkpoint, "0 seconds")
        wait_for("a commit", functools.partial(committed_more, checkpoint, before))
        time.sleep(chance.random())
        outcomes.add(told(query))
        wait_ended(query)
        assert query.exception() is None
        assert batches(checkpoint / "offsets")[-1] == batches(checkpoint / "commits")[-1]
    return outcomes


@pytest.mark.storm
def test_busy_queries_end_behind_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    assert "ends-after-batch" in end_at_random_moments(spark, tmp_path, rounds=4, seed=1)


@pytest.mark.storm
def test_many_busy_queries_end_behind_a_commit(spark: SparkSession, tmp_path: Path) -> None:
    for seed in range(10):
        end_at_random_moments(spark, tmp_path / str(seed), rounds=20, seed=seed)


def test_an_idle_query_ends_at_once(spark: SparkSession, tmp_path: Path) -> None:
    query = start(spark, tmp_path, "1 hour")
    wait_for("a commit", lambda: batches(tmp_path / "commits"))
    wait_for("the end of the trigger", lambda: not query.status["isTriggerActive"])
    asked_at = time.monotonic()
    assert told(query) == "ends-at-once"
    wait_ended(query)
    assert time.monotonic() - asked_at < 120, "and not until the next trigger"
    assert batches(tmp_path / "offsets") == batches(tmp_path / "commits") == [0]
