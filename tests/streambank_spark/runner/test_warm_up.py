"""A JVM is warmed up by a small query that leaves nothing behind, and only where nothing hears of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streambank_spark.private.jvm import session_beside
from streambank_spark.runner.warm_up import LISTENERS, warm_up


@pytest.mark.storm
@pytest.mark.spark
def test_it_counts_some_batches_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    assert warm_up("local").startswith("10 batches in ")
    assert not list(tmp_path.iterdir())
    assert SparkSession.getActiveSession() is spark and not spark.streams.active
    assert spark.conf.get("spark.sql.shuffle.partitions") == partitions


@pytest.mark.spark
def test_the_session_of_the_application_stays_the_one_of_rdds(spark: SparkSession) -> None:
    rdd = spark.sparkContext.parallelize([(1,)])
    before = rdd.toDF(["n"]).sparkSession  # of whichever session other tests have made last
    assert warm_up("local", within_s=0.0).startswith("0 batches in ")
    assert rdd.toDF(["n"]).sparkSession is before


@pytest.mark.spark
def test_it_has_the_settings_of_streaming_of_the_application(spark: SparkSession) -> None:
    interval = "spark.sql.streaming.stateStore.maintenanceInterval"
    spark.conf.set(interval, "7s")
    spark.conf.set("spark.sql.streaming.checkpointLocation", "/nowhere")
    try:
        beside = session_beside(spark)
        assert beside.conf().get(interval) == "7s"
        assert beside.conf().get("spark.sql.streaming.checkpointLocation", "unset") == "unset"
    finally:
        spark.conf.unset(interval)
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


@pytest.mark.spark
def test_it_gives_up_when_it_takes_too_long(spark: SparkSession) -> None:
    assert warm_up("local", within_s=0.0).startswith("0 batches in ")


@pytest.mark.spark
def test_that_it_fails_is_no_failure(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    monkeypatch.setattr(tempfile, "tempdir", str(gone))
    assert warm_up("local").startswith("it failed: FileNotFoundError")


@pytest.mark.spark
def test_it_is_left_out_where_executors_are_elsewhere(spark: SparkSession) -> None:
    assert warm_up("standalone") == "executors on other machines would not find its files"


@pytest.mark.spark
@pytest.mark.parametrize("name", LISTENERS)
def test_it_is_left_out_where_a_listener_would_hear_of_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    settings = spark.sparkContext.getConf().set(name, "com.example.Listener")
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: settings)
    assert warm_up("local") == f"{name} would hear of it"
