"""The oracle is worth something: it catches the copies and the rollbacks that people make by hand.

Every run has one of them, a sink left ahead; the storm has the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark.exactly_once_oracle import (
    Trial,
    committed,
    copy_recursively,
    newest_snapshot,
    roll_back_in_place,
)
from tests.support.spark.oracle_savepoints import Savepoints
from tests.support.spark.queries import QUERIES, STATE
from tests.support.spark.sessions import BY_FILE_SYSTEM, END_S, ended, prepare, run_to_end, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


@pytest.mark.storm
@pytest.mark.parametrize("layout", ["hdfs", "rocksdb-changelog"])
def test_a_rollback_in_place_is_caught_and_a_savepoint_of_the_same_batch_is_exact(
    spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    """The next reload picks up stale state of the abandoned history; a savepoint carries none of it."""
    conf = {
        **BY_FILE_SYSTEM,
        "spark.sql.streaming.minBatchesToRetain": "100",
        f"{STATE}minDeltasForSnapshot": "2",
    }
    trial = Trial(spark, QUERIES["aggregation"], layout, tmp_path, batches=16, conf=conf)
    run_to_end(trial.session(), trial.query, trial.source, trial.checkpoint, trial.sink)
    stale = newest_snapshot(trial.checkpoint, layout, at_most=14)
    batch = stale - 4
    savepoints = Savepoints(tmp_path / "repository", trial)
    restored = savepoints.restore(savepoints.take(batch))

    trial.replace_input(after=batch, seed=8)
    trial.conf[f"{STATE}minDeltasForSnapshot"] = "100"  # no new snapshot covers up the stale one
    truth = trial.undisturbed()
    roll_back_in_place(trial.checkpoint, batch)

    assert trial.judge(restored, batch, truth, restart_after=stale - 1) == []
    caught = trial.judge(trial.checkpoint, batch, truth, restart_after=stale - 1)
    assert caught, f"state version {stale} of the abandoned history went unnoticed"


@pytest.mark.storm
def test_a_plain_recursive_copy_of_a_running_query_is_caught(spark: SparkSession, tmp_path: Path) -> None:
    trial = Trial(spark, QUERIES["aggregation"], "hdfs", tmp_path, batches=24)
    truth = trial.undisturbed()
    copy = tmp_path / "copy"
    with ended(start(trial.session(), trial.query, trial.source, trial.checkpoint, trial.sink)) as running:
        wait = batches_to_pass(trial.checkpoint, running, 4)
        wait()
        claimed = copy_recursively(trial.checkpoint, copy, wait)

    trial.conf.update(BY_FILE_SYSTEM)
    assert 0 <= claimed < trial.batches - 1
    assert trial.judge(copy, claimed, truth)


@pytest.mark.storm
def test_a_file_sink_left_ahead_is_caught(spark: SparkSession, tmp_path: Path) -> None:
    """Without its sink being taken back, Spark skips the batches that it finds in the sink's log.

    Batches are cut otherwise after the restore, so new input falls into batches of old numbers, and is lost.
    """
    conf = {**BY_FILE_SYSTEM, "spark.sql.streaming.minBatchesToRetain": "100"}
    trial = Trial(spark, QUERIES["stateless"], "hdfs", tmp_path, batches=12, conf=conf)
    run_to_end(trial.session(), trial.query, trial.source, trial.checkpoint, trial.sink)
    savepoints = Savepoints(tmp_path / "repository", trial)
    saved = savepoints.take(batch=5)
    trial.more_input(16)
    trial.recut(3)
    truth = trial.undisturbed()

    assert trial.judge(savepoints.restore(saved, sink="accept"), saved.batch, truth)
    assert trial.judge(savepoints.restore(saved, sink="rollback"), saved.batch, truth) == []


def batches_to_pass(checkpoint: Path, running: StreamingQuery, count: int) -> Callable[[], None]:
    """A wait until `count` more batches are committed, or the query has ended."""

    def wait() -> None:
        goal, deadline = committed(checkpoint) + count, time.monotonic() + END_S
        while running.isActive and committed(checkpoint) < goal:
            if time.monotonic() > deadline:
                raise TimeoutError(f"batch {goal} did not come")
            time.sleep(0.01)

    return wait
