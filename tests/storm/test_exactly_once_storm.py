"""Every kind of state in every layout: savepoints without a pause, several of each restored and continued."""

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
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

BATCHES = 16
RESTORED = 4
"""Of each of 39 cells: 156 savepoints in all."""

CELLS = [(query.name, layout) for query in QUERIES.values() for layout in query.layouts]


@pytest.mark.parametrize(("query", "layout"), CELLS)
def test_every_restored_savepoint_goes_on_exactly(
    spark: SparkSession, tmp_path: Path, query: str, layout: str
) -> None:
    prepare(spark)
    trial = Trial(spark, QUERIES[query], layout, tmp_path, BATCHES)
    truth = trial.undisturbed()
    savepoints = Savepoints(tmp_path / "repository", trial)

    takes = trial.run_live(savepoints.take)

    assert trial.result(trial.sink) == truth, "taking savepoints disturbed the query"
    assert len(takes.saved) >= RESTORED, takes
    for saved in takes.saved:
        assert savepoints.findings(saved) == []
    savepoints.lose_the_checkpoint()
    check_savepoints(trial, savepoints, spread(takes.saved, RESTORED, below=BATCHES - 1), truth)
