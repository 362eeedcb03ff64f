"""Savepoints of running queries, restored and continued, give what a run that was never disturbed gives.

The kind of state that has the most to lose; `tests/storm` has every kind in every layout, and hundreds of
savepoints.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark.exactly_once_oracle import Trial
from tests.support.spark.oracle_savepoints import Savepoints, check_savepoints, spread
from tests.support.spark.queries import QUERIES
from tests.support.spark.sessions import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # `make test` has test_exactly_once_after_kill.py.
    pytest.mark.storm,
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

BATCHES = 10
RESTORED = 2

CELLS = [("transform-with-state", "format-v2")]


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


@pytest.mark.parametrize(("query", "layout"), CELLS)
def test_restored_savepoints_go_on_exactly(
    spark: SparkSession, tmp_path: Path, query: str, layout: str
) -> None:
    trial = Trial(spark, QUERIES[query], layout, tmp_path, BATCHES)
    truth = trial.undisturbed()
    savepoints = Savepoints(tmp_path / "repository", trial)

    takes = trial.run_live(savepoints.take)

    assert trial.result(trial.sink) == truth, "taking savepoints disturbed the query"
    assert len(takes.saved) > RESTORED, takes
    savepoints.lose_the_checkpoint()
    check_savepoints(trial, savepoints, spread(takes.saved, RESTORED, below=BATCHES - 1), truth)
