"""Rows as the bytes that Spark makes of them, compared with what Spark makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import CalendarIntervalType, StructType

from streambank.core.errors import RefusedError
from streambank_spark.rewrite.unsafe_row import encoder, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = """
    true AS flag, cast(-3 AS byte) AS tiny, cast(300 AS short) AS small, 70000 AS whole, -5000000000L AS long,
    1.5f AS half, -2.25d AS double, cast('nan' AS double) AS odd, date '1969-12-30' AS day,
    timestamp '2026-03-29 01:30:00.123456' AS moment, timestamp_ntz '1960-01-01 00:00:00.000001' AS local,
    'zwölf Monde' AS text, '' AS empty, x'00ff10' AS bytes, cast(-123.45 AS decimal(9, 2)) AS price,
    cast('-98765432109876543210.123' AS decimal(30, 3)) AS wide, cast('0.001' AS decimal(38, 3)) AS thin,
    named_struct('a', 'left', 'b', 7, 'c', array(1, cast(null AS int), 3)) AS inner,
    array('x', null, 'a longer text than a word') AS texts, array(cast(1 AS byte), cast(2 AS byte)) AS bits,
    array(true, null) AS flags, array(array(1L), array()) AS nested, map('k', 1, 'j', null) AS entries,
    cast(null AS string) AS no_text, cast(null AS decimal(30, 3)) AS no_wide, cast(null AS int) AS no_whole,
    cast(null AS struct<a: int>) AS no_inner, cast(null AS array<int>) AS no_texts
"""


pytestmark = pytest.mark.spark


def spark_bytes(frame: Any) -> list[bytes]:
    """The bytes of each row, as Spark holds them."""
    rows = frame._jdf.queryExecution().executedPlan().executeCollect()
    return [bytes(row.getBytes()) for row in rows]


def test_rows_of_every_type_are_the_bytes_that_spark_makes_of_them(spark: SparkSession) -> None:
    frame = spark.sql(f"SELECT {COLUMNS}")
    kind = frame.schema
    columns = [plain(F.col(field.name), field.dataType).alias(field.name) for field in kind.fields]
    (values,) = frame.select(*columns).collect()
    for number, field in enumerate(kind.fields):
        (expected,) = spark_bytes(frame.select(field.name))
        assert encoder(StructType([field]))([values[number]]) == expected, field.name
    (whole,) = spark_bytes(frame)
    assert encoder(kind)(list(values)) == whole


def test_more_fields_than_a_word_has_bits(spark: SparkSession) -> None:
    frame = spark.range(1).select(
        *(F.lit(n if n % 3 else None).cast("int").alias(f"c{n}") for n in range(70))
    )
    (values,) = frame.collect()
    assert encoder(frame.schema)(list(values)) == spark_bytes(frame)[0]


def test_a_time_without_a_zone_has_none_in_any_zone(spark: SparkSession) -> None:
    session = spark.newSession()
    times = ("2024-01-01 12:00:00.25", "2024-03-10 02:30:00", "2024-11-03 01:30:00", "1883-11-18 12:01:00")
    rows = ", ".join(f"(timestamp_ntz '{one}')" for one in times)
    for zone in ("America/New_York", "Asia/Kolkata", "UTC"):
        session.conf.set("spark.sql.session.timeZone", zone)
        frame = session.sql(f"SELECT * FROM VALUES {rows} AS t(local)")
        found = frame.select(plain(F.col("local"), frame.schema["local"].dataType).alias("local")).collect()
        assert [encoder(frame.schema)(list(row)) for row in found] == spark_bytes(frame), zone


def test_a_type_that_is_not_known_is_refused_with_the_way_out() -> None:
    with pytest.raises(RefusedError, match="interval") as caught:
        plain(F.lit(1), CalendarIntervalType())
    assert "RocksDB" in caught.value.hint
