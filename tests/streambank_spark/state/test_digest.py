"""Fingerprints of state: what must not matter to them, and what must."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streambank.checkpoint.closure import OperatorState, StoreState
from streambank.core.errors import FormatError
from streambank_spark.state.digest import digest_frame, digest_of
from streambank_spark.state.row_hash import row_hash
from streambank_spark.state.staging import Staging, materialized_checkpoint
from streambank_spark.state.state import QueryState, StatePart, parts_of
from tests.support.checkpoint.recorded import checkpoint, unpack
from tests.support.refuses import refuses

pytestmark = pytest.mark.storm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_timers_are_a_part_of_an_operator_that_may_register_them() -> None:
    stores = (StoreState("default", 2, None, 1),)
    timed = OperatorState(3, "transformWithStateInPandasExec", stores, ("seen",), timers=True)
    assert parts_of(timed) == [
        StatePart(3, "seen", {"stateVarName": "seen"}),
        StatePart(3, "timers", {"readRegisteredTimers": "true"}),
    ]
    (found,) = checkpoint("4.3.0/ids-changelog-transform").plan().operators
    assert not found.timers, "its time mode is none"
    path = "state/0/_metadata/v2/0"
    for mode, timers in (("EventTime", True), ("ProcessingTime", True), ("another", False)):
        other = checkpoint("4.3.0/ids-changelog-transform").having(
            {path: lambda data, mode=mode: data.replace(b'"NoTime', f'"{mode}'.encode())}  # type: ignore[misc]
        )
        assert other.plan().operators[0].timers is timers


DIFFERENT = {
    "null and value change places": ("null::int AS a, 1 AS b", "1, null"),
    "an element moves to the next array": (
        "array(1) AS a, array(2) AS b",
        "array(1, 2), array()::array<int>",
    ),
    "a null element, and none": ("array(null::int) AS a", "array()::array<int>"),
    "the order of an array": ("array(1, 2) AS a", "array(2, 1)"),
    "zero and negative zero": ("0.0D AS a", "-0.0D"),
    "negative zero deep inside": ("map('a', array(0.0D)) AS a", "map('a', array(-0.0D))"),
    "texts that a collation calls equal": ("'a' COLLATE UTF8_LCASE AS a", "'A' COLLATE UTF8_LCASE"),
    "a value of a map": ("map(1, 2, 3, 4) AS a", "map(1, 4, 3, 2)"),
    "a struct of null, and no struct": ("named_struct('x', null::int) AS a", "null"),
    "one bit of a long": ("4611686018427387904L AS a", "4611686018427387905L"),
    "a decimal of many digits": ("12345678901234567890.5 AS a", "12345678901234567890.6"),
    "a variant": ("parse_json('{\"x\":1}') AS a", "parse_json('{\"x\":2}')"),
}
SAME = {
    "entries of a map in another order": ("map(1, 2, 3, 4) AS a", "map(3, 4, 1, 2)"),
    "not a number": ("double('NaN') AS a", "-double('NaN')"),
    "names that are there twice": (
        "named_struct('a', 1, 'A', 2, 'a', 3) AS a, time'10:00' AS b, null AS c",
        "named_struct('x', 1, 'y', 2, 'z', 3), time'10:00', null",
    ),
}


@pytest.mark.spark
def test_hashes_tell_rows_apart_by_their_content_and_nothing_else(spark: SparkSession) -> None:
    pairs = []
    for name, (first, second) in {**DIFFERENT, **SAME}.items():
        frame = spark.sql(f"SELECT {first} UNION ALL SELECT {second}")
        hashes = (each.alias(f"h{number}") for number, each in enumerate(row_hash(frame)))
        pairs.append(frame.select(F.lit(name).alias("name"), *hashes))
    found: dict[str, list[Any]] = {}
    for row in reduce(DataFrame.unionAll, pairs).collect():
        found.setdefault(row["name"], []).append(row)
    assert found.keys() == {*DIFFERENT, *SAME}
    for name, (one, other) in found.items():
        assert (one["h0"] == other["h0"], one["h1"] == other["h1"]) == ((name in SAME,) * 2), name
        assert one["h0"] != one["h1"], "two seeds, two hashes"


@pytest.mark.spark
def test_neither_order_nor_partitions_matter_and_each_row_does(spark: SparkSession) -> None:
    rows = spark.range(1000).selectExpr(
        "id % 100 AS key", "id AS value", "cast(id % 7 AS int) AS partition_id"
    )
    count, digest = digest_frame(rows)
    assert count == 1000 and len(digest) == 32
    elsewhere = rows.repartition(5).orderBy(F.desc("value")).withColumn("partition_id", F.lit(1))
    assert digest_frame(elsewhere) == (count, digest)
    changed = rows.withColumn("value", F.when(F.col("value") == 500, 501).otherwise(F.col("value")))
    assert digest_frame(changed) != (count, digest)
    assert digest_frame(rows.union(rows.limit(1)))[1] != digest, "a row that is there twice"
    # What is kept and what went make the whole.
    halves = [digest_frame(rows.where(where)) for where in ("value < 300", "value >= 300")]
    assert sum(each[0] for each in halves) == count
    for half in (slice(0, 16), slice(16, 32)):
        assert sum(int(each[1][half], 16) for each in halves) % 2**64 == int(digest[half], 16)
    assert digest_frame(rows.where("false")) == (0, "0" * 32)


@pytest.mark.spark
def test_the_same_state_has_the_same_digest_in_every_layout(spark: SparkSession, tmp_path: Path) -> None:
    """The same query over the same input, kept by each provider, format and join version."""
    for group in (
        ("hdfs-window", "rocksdb-changelog-window", "ids-changelog-window"),
        ("hdfs-join", "ids-changelog-join3"),
    ):
        found = {}
        for name in group:
            folder = unpack(f"4.3.0/{name}", tmp_path / name) / "checkpoint"
            # Moved since it was written, and its metadata says where that was: only a restore mends that.
            with materialized_checkpoint(str(folder), None, Staging("local", None, print)) as laid:
                found[name] = digest_of(QueryState(spark, laid.location))
        one = found[group[0]]
        assert all(each == one for each in found.values()), found
        assert all(each.rows > 10 for each in one)
    assert [each.store for each in one] == ["left", "right"]
    assert one[0].digest != one[1].digest


@pytest.mark.spark
def test_a_type_that_is_not_known_is_refused_by_name(spark: SparkSession) -> None:
    with refuses(FormatError, "unknown-type", match="interval"):
        row_hash(spark.sql("SELECT make_interval(1, 2) AS a"))
