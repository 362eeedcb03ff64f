"""A driver killed in the middle of a batch: its checkpoint still gives an exact savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.drivers.killed_in_batch import kill_in_batch, leave_temporary_files
from tests.support.spark.exactly_once_oracle import Trial, committed
from tests.support.spark.oracle_savepoints import Savepoints
from tests.support.spark.queries import QUERIES
from tests.support.spark.sessions import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KILLED_IN = 4


@pytest.mark.storm
@pytest.mark.parametrize("layout", ["hdfs", "format-v2"])
def test_the_checkpoint_of_a_killed_driver_gives_an_exact_savepoint(
    spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    prepare(spark)
    trial = Trial(spark, QUERIES["aggregation"], layout, tmp_path, batches=8)
    truth = trial.undisturbed()
    kill_in_batch(trial, KILLED_IN)
    leave_temporary_files(trial.checkpoint, KILLED_IN)
    assert (trial.checkpoint / "offsets" / str(KILLED_IN)).exists(), "the batch was not planned"
    assert committed(trial.checkpoint) == KILLED_IN - 1
    before = snapshot(trial.checkpoint)

    savepoints = Savepoints(tmp_path / "repository", trial)
    saved = savepoints.take()

    assert saved.batch == KILLED_IN - 1
    assert savepoints.findings(saved) == []
    assert snapshot(trial.checkpoint) == before, "a take wrote into the checkpoint"
    savepoints.lose_the_checkpoint()
    restored = savepoints.restore(saved)
    assert not [path for path in restored.rglob("*") if path.name.endswith(".tmp")]
    assert trial.judge(restored, saved.batch, truth) == []


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
