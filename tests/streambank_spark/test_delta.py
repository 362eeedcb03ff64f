"""Each batch once in a Delta table, by delta-rs, in Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from streambank.core.errors import InputError
from streambank_spark.delta import write_delta_once
from tests.support.refuses import refuses
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


class Late:
    """A batch during whose computing something else happens."""

    def __init__(self, frame: DataFrame, meanwhile: Callable[[], object]) -> None:
        self.sparkSession, self._frame, self._meanwhile = frame.sparkSession, frame, meanwhile

    def toArrow(self) -> Any:
        self._meanwhile()
        return self._frame.toArrow()


def test_another_driver_that_writes_the_same_batch(spark: SparkSession, tmp_path: Path) -> None:
    """It writes it after this one has looked: this one fails, and the rows are there once."""
    query, table = Duplicates(spark, tmp_path), str(tmp_path / "lake")

    def write(frame: DataFrame, batch_id: int) -> None:
        def other() -> None:
            assert write_delta_once(frame, batch_id, table)

        late = Late(frame, other) if batch_id else frame
        write_delta_once(late, batch_id, table)  # type: ignore[arg-type]  # what it uses of a frame, it has

    query.add(2)
    query.run(write, fails="Concurrent transaction failed")
    assert Counter(DeltaTable(table).to_pyarrow_table()["k"].to_pylist()) == query.expected()


def test_outside_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    with refuses(InputError, "no-streaming-query"):
        write_delta_once(spark.range(1), 0, str(tmp_path / "lake"))
    assert not (tmp_path / "lake").exists()
