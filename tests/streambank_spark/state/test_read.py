"""Rows of state as people see them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank_spark.state.read import RowChoice, export_state, read_rows
from streambank_spark.state.staging import Staging, materialized_checkpoint
from streambank_spark.state.state import QueryState
from tests.support.checkpoint.recorded import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def rows_after(spark: SparkSession, name: str, batch: int, folder: Path) -> list[dict[str, Any]]:
    """All rows, without the partition."""
    checkpoint = unpack(name, folder) / "checkpoint"
    staging = Staging("local[2]", str(folder / "work"), print)
    with materialized_checkpoint(str(checkpoint), batch, staging) as laid:
        state = QueryState(spark, laid.location)
        rows, more = read_rows(state, RowChoice(), 0)
        exported = export_state(spark, state, str(folder / "exported"), RowChoice())
    assert not more and sum(one.rows for one in exported) == len(rows)
    return sorted(({**row, "partition": None} for row in rows), key=str)


@pytest.mark.parametrize(
    ("query", "batch"), [pytest.param("window", 6, marks=pytest.mark.storm), ("session", 7)]
)
def test_state_of_spark_3_5_is_the_same_however_it_is_kept(
    spark: SparkSession, query: str, batch: int, tmp_path: Path
) -> None:
    by_files = rows_after(spark, f"3.5.9/hdfs-{query}", batch, tmp_path / "hdfs")
    by_newer = rows_after(spark, f"4.3.0/hdfs-{query}", batch, tmp_path / "newer")
    assert by_files == by_newer and len(by_files) > 1
    assert rows_after(spark, f"3.5.9/rocksdb-{query}", batch, tmp_path / "rocksdb") == by_files
