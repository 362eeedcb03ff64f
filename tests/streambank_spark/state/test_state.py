from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkConf, SparkContext

from streambank_spark.state.state import QueryState
from tests.support.checkpoint.recorded import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SHUFFLE = "spark.sql.shuffle.partitions"


def test_small_state_is_read_by_few_tasks_unless_somebody_says_how_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = str(unpack("4.3.0/rocksdb-window", tmp_path) / "checkpoint")
    monkeypatch.setattr(SparkContext, "defaultParallelism", 3)
    declared = QueryState(spark, location).session.conf.get(SHUFFLE)
    assert declared == spark.conf.get(SHUFFLE) != "3", "what is set stays"
    monkeypatch.setattr(SparkContext, "getConf", lambda self: SparkConf(loadDefaults=False))
    assert QueryState(spark, location).session.conf.get(SHUFFLE) == "3"
