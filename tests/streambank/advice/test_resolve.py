"""What a plan begins with: options, a job's settings, and defaults; and what excludes each other."""

from __future__ import annotations

import pytest

from streambank.advice.memory import RocksDBSettings
from streambank.advice.request import PlaceRequest, RocksDBRequest, StateRequest
from streambank.advice.resolve import cluster_of, rows_of, settings_of
from streambank.advice.values import DeclaredConf, Values
from streambank.core.errors import InputError
from streambank.doctor.spark_conf import MIB, SparkConf

STATE = "spark.sql.streaming.stateStore."
BOUNDED = f"{STATE}rocksdb.boundedMemoryUsage"


def declared(**settings: str) -> Values:
    return Values(DeclaredConf("orders", SparkConf("yarn", settings)))


def test_without_anything_the_defaults_are_those_of_spark() -> None:
    values = Values(None)
    assert settings_of(RocksDBRequest(), values) == RocksDBSettings()
    assert {one.origin for one in values.found} == {"spark", "default"}


@pytest.mark.parametrize(
    ("setting", "value", "option"),
    [
        (BOUNDED, "yes", "--bounded"),
        (f"{STATE}rocksdb.writeBufferSizeMB", "32m", "--write-buffer"),
        (f"{STATE}rocksdb.maxWriteBufferNumber", "", "--write-buffers"),
        (f"{STATE}rocksdb.blockCacheSizeMB", "0", "--block-cache"),
        (f"{STATE}rocksdb.blockSizeKB", "-4", "--block-size"),
        (f"{STATE}minDeltasForSnapshot", "ten", "--min-deltas"),
        ("spark.executor.cores", "two", "--cores"),
        ("spark.executor.instances", "0", "--executors"),
        ("spark.executor.memory", "4 gigs", "--executor-memory"),
        ("spark.executor.memoryOverhead", "nan", "[jobs.orders.spark]."),
        ("spark.executor.memoryOverheadFactor", "nan", "[jobs.orders.spark]."),
        ("spark.executor.pyspark.memory", "inf", "[jobs.orders.spark]."),
        ("spark.dynamicAllocation.enabled", "1", "--executors"),
        ("spark.sql.shuffle.partitions", "1e3", "--partitions"),
        ("spark.sql.shuffle.partitions", "9" * 30, "--partitions"),
    ],
)
def test_a_setting_that_spark_refuses_is_named_with_its_job(setting: str, value: str, option: str) -> None:
    values = declared(**{setting: value, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"})
    with pytest.raises(InputError) as caught:
        cluster_of(PlaceRequest(), values, None)
        settings_of(RocksDBRequest(), values)
    assert caught.value.code == "bad-input"
    assert f"{setting} of job orders is {value!r}, and has to hold " in caught.value.message
    assert "[jobs.orders.spark]" in caught.value.hint and option in caught.value.hint


def test_the_factor_of_the_overhead_counts_where_no_overhead_is_declared() -> None:
    settings = {"spark.executor.memory": "10g", "spark.executor.memoryOverheadFactor": "0.4"}
    assert cluster_of(PlaceRequest(), declared(**settings), None).overhead_bytes == 4096 * MIB
    both = declared(**settings, **{"spark.executor.memoryOverhead": "1g"})
    assert cluster_of(PlaceRequest(), both, None).overhead_bytes == 1024 * MIB
    assert cluster_of(PlaceRequest(), declared(), None).overhead_bytes is None


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1.5", "-0.1", "half", ""])
@pytest.mark.parametrize("name", ["writeBufferCacheRatio", "highPriorityPoolRatio"])
def test_a_ratio_that_spark_refuses_is_named_with_its_job(name: str, value: str) -> None:
    values = declared(**{BOUNDED: "true", f"{STATE}rocksdb.{name}": value})
    with pytest.raises(InputError, match=f"{name} of job orders"):
        settings_of(RocksDBRequest(), values)


@pytest.mark.parametrize(
    "given",
    [
        RocksDBRequest(max_memory_bytes=MIB),
        RocksDBRequest(max_memory_bytes=MIB, bounded=False),
        RocksDBRequest(write_buffer_ratio=0.5),
        RocksDBRequest(high_priority_ratio=0.1, bounded=False),
        RocksDBRequest(block_cache_bytes=MIB, bounded=True),
        RocksDBRequest(min_deltas=5),
        RocksDBRequest(min_deltas=5, changelog=False),
    ],
)
def test_what_has_no_effect_is_refused(given: RocksDBRequest) -> None:
    with pytest.raises(InputError, match="has no effect") as caught:
        settings_of(given, Values(None))
    assert caught.value.code == "usage"


def test_what_the_job_declares_decides_what_has_an_effect() -> None:
    bounded = declared(**{BOUNDED: "true"})
    assert settings_of(RocksDBRequest(max_memory_bytes=MIB), bounded).max_memory_bytes == MIB
    with pytest.raises(InputError, match=r"boundedMemoryUsage is on \(declared by job orders\)"):
        settings_of(RocksDBRequest(block_cache_bytes=MIB), declared(**{BOUNDED: "true"}))


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (StateRequest(100, 10, 10), "usage"),
        (StateRequest(5, 10), "bad-input"),
        (StateRequest(0), "bad-input"),
        (StateRequest(None, -1), "bad-input"),
        (StateRequest(None, 10, 0), "bad-input"),
        (StateRequest(10**19), "bad-input"),
    ],
)
def test_a_state_that_cannot_be_is_refused(given: StateRequest, code: str) -> None:
    with pytest.raises(InputError) as caught:
        rows_of(given, Values(None), None)
    assert caught.value.code == code
