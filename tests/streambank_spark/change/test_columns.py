"""Which values fit a column of state, and which of its columns are never null."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from streambank_spark.change.bootstrap import read_table
from streambank_spark.change.columns import fitted, has_floats_inside, never_null
from streambank_spark.change.request import BootstrapRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        ("1.9D", "bigint", False),
        ("2.0D", "bigint", True),
        ("'1.9'", "bigint", False),
        ("'2'", "bigint", True),
        ("1.999BD", "decimal(10,2)", False),
        ("0.1D", "decimal(10,2)", True),
        ("0.1D", "float", True),
        ("9007199254740993L", "double", False),
        ("300", "tinyint", False),
        ("timestamp '2024-01-01 12:00:00'", "date", False),
        ("timestamp '2024-01-01 00:00:00'", "date", True),
        ("cast(null AS bigint)", "bigint", True),
    ],
)
def test_a_value_that_would_be_rounded_does_not_fit(
    spark: SparkSession, value: str, kind: str, fits: bool
) -> None:
    frame = spark.range(1).select(F.expr(value).alias("v"))
    _, bad = fitted(F.col("v"), frame.schema["v"].dataType, DataType.fromDDL(kind), nullable=True)
    assert [row[0] for row in frame.select(bad).collect()] == [not fits]


def test_buffers_that_have_a_number_from_the_beginning_are_never_null() -> None:
    value = StructType.fromDDL(
        "sum long, max long, sum_2 double, count long, n double, avg double, m2 double"
    )
    assert isinstance(value, StructType)
    assert never_null(value, aggregation=True) == {"sum_2", "count", "n", "avg", "m2"}
    assert never_null(value, aggregation=False) == set()
    within = StructType.fromDDL("expiresAtMicros long")
    assert isinstance(within, StructType)
    assert never_null(within, aggregation=False) == {"expiresatmicros"}


@pytest.mark.parametrize(
    ("kind", "inside"),
    [
        ("a double", False),
        ("a array<double>", True),
        ("a struct<b: array<float>>", True),
        ("a array<int>", False),
        ("a struct<b: double>", False),
    ],
)
def test_floats_in_lists_are_found(kind: str, inside: bool) -> None:
    assert has_floats_inside(StructType.fromDDL(kind)) is inside


def test_columns_of_csv_are_texts(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("c,sum\n007,1\n08,2\n")
    table = read_table(spark, BootstrapRequest.from_dict({"table": str(tmp_path / "table.csv")}))
    assert [tuple(row) for row in table.collect()] == [("007", "1"), ("08", "2")]
