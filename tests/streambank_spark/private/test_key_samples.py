"""Where the sample of keys goes into a plan, of which operators, and what is not sampled, with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

from streambank.core.errors import FormatError
from streambank.sla.skew.traffic import SALTED_BITS, partition_of
from streambank_spark.private import key_samples
from streambank_spark.private.key_samples import METRIC, SamplePoint, observed, writer_of
from tests.support.refuses import refuses

pytestmark = pytest.mark.spark


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of files with four rows in ten of one user."""
    (tmp_path / "in").mkdir()
    users = ["Hot" if n % 10 < 4 else f"u{n}" for n in range(500)]
    lines = [
        json.dumps({"user": user, "n": n % 50, "at": f"2026-01-01 00:00:{n % 60:02}"})
        for n, user in enumerate(users)
    ]
    (tmp_path / "in/0.json").write_text("\n".join(lines))
    return spark.readStream.schema("user string, n long, at timestamp, m map<string, string>").json(
        str(tmp_path / "in")
    )


def points(frame: DataFrame, *keys: str) -> list[SamplePoint]:
    return observed(frame, 1.0, keys)[1]


def count_them(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"user": [key[0]]})


def watermarked(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 minute")


SAMPLED: dict[str, tuple[Callable[[DataFrame], DataFrame], list[tuple[str, str]]]] = {
    "count": (lambda rows: rows.groupBy("user").count(), [("Aggregate", "user")]),
    "two columns, one changed": (
        lambda rows: rows.groupBy(F.lower("user").alias("name"), "n").count(),
        [("Aggregate", "lower(user), n")],
    ),
    "a window": (
        lambda rows: (
            rows.withWatermark("at", "1 minute").groupBy(F.window("at", "5 seconds"), "user").count()
        ),
        [("Aggregate", "window, user")],
    ),
    "a session": (
        lambda rows: (
            rows.withWatermark("at", "1 minute").groupBy(F.session_window("at", "5 seconds"), "user").count()
        ),
        [("Aggregate", "user")],
    ),
    "duplicates": (lambda rows: rows.dropDuplicates(["n", "user"]), [("Deduplicate", "n, user")]),
    "a function of pandas": (
        lambda rows: rows.groupBy("user").applyInPandasWithState(
            count_them, "user string", "n long", "update", "NoTimeout"
        ),
        [("FlatMapGroupsInPandasWithState", "user")],
    ),
    "two operators": (
        lambda rows: rows.dropDuplicates(["user", "n"]).groupBy("user").count(),
        [("Aggregate", "user"), ("Deduplicate", "user, n")],
    ),
}


@pytest.mark.parametrize(("build", "expected"), SAMPLED.values(), ids=SAMPLED)
def test_each_stateful_operator_is_sampled_by_its_own_key(
    rows: DataFrame, build: Callable[[DataFrame], DataFrame], expected: list[tuple[str, str]]
) -> None:
    frame = build(rows)
    dataset, found = observed(frame, 0.5)
    said = [(one.name, ", ".join(one.by).replace("`", "")) for one in found]
    assert [(name, sorted(by.split(", "))) for name, by in said] == [
        (name, sorted(by.split(", "))) for name, by in expected
    ]
    assert [(one.operator, one.own, one.why) for one in found] == [
        (number, True, None) for number in range(len(expected))
    ]
    plan = dataset.queryExecution().analyzed().toString()
    assert [f"CollectMetrics {METRIC}{number}" in plan for number in range(len(found))] == [True] * len(found)
    assert dataset.schema().json() == frame._jdf.schema().json()


def test_what_is_not_sampled_is_named_with_the_reason(rows: DataFrame) -> None:
    assert observed(rows.select("user"), 1.0) == (None, []), "no state"
    assert "all rows are one group" in str(points(rows.groupBy().count())[0].why)
    assert "it is computed (Substring)" in str(
        points(rows.groupBy(F.substring("user", 1, 1)).count())[0].why
    ).replace("its key is", "it is")
    other = rows.select(F.col("user").alias("name"))
    joined = rows.select("user").join(other, F.expr("user = name"))
    assert "a join has keys on both sides" in str(points(joined)[0].why)
    counted = joined.groupBy("user").count()
    assert [one.why is None for one in points(counted)] == [True, False], "the other one is sampled"


def test_below_a_filter_nothing_is_sampled_since_spark_moves_it_down(rows: DataFrame) -> None:
    """Or a cast that fails would meet rows that the filter keeps from it without the sample."""
    numbers = rows.withColumn("v", F.expr("cast(m['v'] AS int)")).groupBy("user").agg(F.sum("v").alias("v"))
    (point,) = points(numbers.where("user = 'Hot'"))
    assert point.why is not None and "a filter" in point.why
    (control,) = points(numbers)
    assert control.why is None


def test_declared_columns_take_the_place_of_the_operators_own(rows: DataFrame) -> None:
    frame = rows.withWatermark("at", "1 minute").groupBy(F.window("at", "5 seconds"), F.upper("user")).count()
    (point,) = points(frame, "user")
    assert (point.by, point.own, point.why) == (("`user`",), False, None)
    (missing,) = points(frame, "customer")
    assert missing.why is not None and "cannot be hashed" in missing.why and "customer" in missing.why
    (hashed,) = points(frame, "m")
    assert hashed.why is not None, "Spark hashes no maps"


def test_releases_that_were_not_tried_are_named() -> None:
    key_samples.require_known_spark("4.3.0")
    for version in ("3.5.9", "4.0.1", "4.1.0", "4.2.0", "5.0.0"):
        with refuses(FormatError, "spark-not-supported", match=f"Spark {version}"):
            key_samples.require_known_spark(version)


def test_the_secret_of_salted_hashes_is_in_no_plan(spark: SparkSession, rows: DataFrame) -> None:
    sampler = key_samples._Sampler(spark, 1.0, (), 7)
    plans = rows.sparkSession.range(1).select(sampler.taken(["id"]))._jdf.queryExecution().toString()
    assert "sha2" in plans and "scalar-subquery" in plans and "LocalTableScan" in plans
    assert sampler._secret not in plans, "plans are in Spark's event log"

    dataset, (point,) = observed(rows.groupBy("user").count(), 0.5, salted=7)
    assert point.why is None
    plan = dataset.queryExecution().analyzed().toString()
    assert "sha2" in plan and "scalar-subquery" in plan


@pytest.mark.storm
def test_a_salted_hash_leads_to_no_key_but_to_its_partition(spark: SparkSession) -> None:
    salts = {"plain": None, "also_plain": None, "first": 7, "second": 7}
    samplers = {name: key_samples._Sampler(spark, 1.0, (), salted) for name, salted in salts.items()}
    users = spark.sql(
        "SELECT user, pmod(hash(user), 7) AS partition FROM VALUES ('Hot'), ('u1'), ('Hot') AS t (user)"
    )
    found = users.select("partition", *(one.taken(["user"]).alias(name) for name, one in samplers.items()))
    hot, other, again = found.collect()
    assert hot["plain"] == hot["also_plain"], "the control: without a salt a name has one hash forever"
    for row in (hot, other):
        assert row["first"] >> SALTED_BITS == row["second"] >> SALTED_BITS == row["partition"]
        assert row["first"] != row["second"], "each start has another secret"
    assert hot["first"] == again["first"] != other["first"]


@pytest.mark.storm
def test_operators_are_numbered_as_in_the_state_and_the_hash_leads_to_the_key(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    frame = rows.dropDuplicates(["user", "n"]).groupBy("user").count()
    dataset, _ = observed(frame, 1.0)
    writer = frame.writeStream.outputMode("update").format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
    writer._jwrite = writer_of(writer._jwrite, dataset)
    query = writer.start()
    query.awaitTermination()
    progress = json.loads(query.recentProgress[0].json)
    assert [one["operatorName"] for one in progress["stateOperators"]] == ["stateStoreSave", "dedupe"]
    metrics = progress["observedMetrics"]
    assert metrics[f"{METRIC}1"]["rows"] == 500
    assert metrics[f"{METRIC}0"]["rows"] == progress["stateOperators"][1]["numRowsUpdated"], "fewer"
    quantiles = metrics[f"{METRIC}0"]["quantiles"]
    hot = max(set(quantiles), key=quantiles.count)
    state = spark.read.format("statestore").option("operatorId", 0).load(str(tmp_path / "ck"))
    hashed = "shiftleft(hash(key.*) & 4294967295L, 20) | (xxhash64(key.*) & 1048575L)"
    found = state.where(F.expr(hashed) == hot).select("key.user", "partition_id").collect()
    assert [row["user"] for row in found] == ["Hot"]
    partitions = progress["stateOperators"][0]["numShufflePartitions"]
    assert found[0]["partition_id"] == partition_of(hot, partitions)
