"""Each batch once in a Delta table, by delta-rs, in Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from streambank.core.errors import InputError
from streambank_spark.delta import write_delta_once
from tests.support.spark.foreach_batch import Duplicates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def test_a_batch_that_comes_again_is_computed_and_not_written(spark: SparkSession, tmp_path: Path) -> None:
    """The driver ends between the commit of the table and that of Spark: the batch comes again."""
    query, table = Duplicates(spark, tmp_path), str(tmp_path / "lake")
    written: list[bool] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        written.append(write_delta_once(frame, batch_id, table))

    def write_and_end(frame: DataFrame, batch_id: int) -> None:
        write(frame, batch_id)
        raise OSError("injected: the driver ends")

    query.add(1)
    query.run(write_and_end, fails="injected")
    query.add(1)
    query.run(write)
    assert written == [True, False, True]
    found = DeltaTable(table)
    assert Counter(found.to_pyarrow_table()["k"].to_pylist()) == query.expected()
    assert found.transaction_version(query.query_id) == 1


def test_outside_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        write_delta_once(spark.range(1), 0, str(tmp_path / "lake"))
    assert caught.value.code == "no-streaming-query" and not (tmp_path / "lake").exists()
