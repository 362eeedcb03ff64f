"""Every kind of state in every layout: savepoints without a pause, several of each restored and continued."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.storm.cells import EXACTLY_ONCE
from tests.support.spark.exactly_once_cell import play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.mark.parametrize(("query", "layout"), EXACTLY_ONCE)
def test_every_restored_savepoint_goes_on_exactly(
    spark: SparkSession, tmp_path: Path, query: str, layout: str
) -> None:
    """Of each of 39 cells 4 savepoints are restored: 156 in all."""
    play(spark, tmp_path, query, layout)
