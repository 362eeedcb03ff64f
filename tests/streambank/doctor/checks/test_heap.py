"""HDFS-backed state against the heap that it lies in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streambank.doctor.checks.heap import check_heap
from streambank.doctor.spark_conf import SparkConf
from tests.support.checkpoint.doctor_inputs import conf, found, planned, skipped
from tests.support.sla.progress_records import operator

GB = 10**9
CLOSURE, _ = planned("4.3.0/hdfs-window")


def held(*sizes: float) -> dict[int, list[dict[str, object]]]:
    """What one operator took, batch by batch."""
    return {0: [dict(operator(memoryUsedBytes=int(size))) for size in sizes]}


@pytest.mark.parametrize(
    ("size", "settings", "severity"),
    [
        (0.1, conf(), None),
        (0.35, conf(), "warning"),
        (0.9, conf(), "error"),
        (0.9, conf(spark__driver__memory="8g"), None),
        (0.9, conf(spark__driver__memory="3g"), None),
        (1.9, conf(spark__driver__memory="4096"), "warning"),
        (1.9, conf("yarn", spark__executor__instances="10"), None),
        (1.9, conf("yarn", spark__executor__instances="4"), "warning"),
        (1.9, conf("yarn", spark__executor__instances="2"), "error"),
    ],
)
def test_state_is_held_against_what_spark_leaves_of_the_heap(
    size: float, settings: SparkConf, severity: str | None
) -> None:
    finding = found(check_heap(CLOSURE, held(size * GB), settings)).get("hdfs-state-exceeds-heap")
    assert (finding.severity if finding else None) == severity


def test_the_evidence_names_state_heap_and_setting() -> None:
    cause = found(check_heap(CLOSURE, held(GB), conf(spark__driver__memory="1g")))[
        "hdfs-state-exceeds-heap"
    ].cause
    assert "takes 1 GB" in cause and "the heap has 1.07 GB (spark.driver.memory=1g)" in cause
    cause = found(check_heap(CLOSURE, held(GB), conf()))["hdfs-state-exceeds-heap"].cause
    assert "spark.driver.memory is not declared, so Spark's default" in cause


def test_one_odd_batch_does_not_count() -> None:
    assert not found(check_heap(CLOSURE, held(1000, GB, 2000), conf()))


def test_gigabytes_in_one_heap_are_a_warning_whatever_the_heap() -> None:
    large = conf(spark__driver__memory="64g")
    assert set(found(check_heap(CLOSURE, held(2 * GB), large))) == {"large-heap-state"}
    assert not found(check_heap(CLOSURE, held(1.9 * GB), large))
    spread = conf("spark://h:7077", spark__executor__instances="4", spark__executor__memory="64g")
    assert not found(check_heap(CLOSURE, held(4 * GB), spread))


def test_what_is_not_declared_is_said() -> None:
    (told,) = skipped(check_heap(CLOSURE, held(GB), None))
    assert "not declared as a job" in told.why
    for settings in (
        conf("yarn"),
        conf("yarn", spark__executor__instances="4", spark__dynamicAllocation__enabled="true"),
    ):
        (told,) = skipped(check_heap(CLOSURE, held(GB), settings))
        assert "does not say how many executors" in told.why


def test_without_records_the_files_tell_the_least() -> None:
    assert not found(check_heap(CLOSURE, {}, None))
    (told,) = skipped(check_heap(CLOSURE, {}, None))
    assert "no progress records" in told.why
    (one,) = CLOSURE.operators
    (store,) = one.stores
    parts = tuple(replace(part, base_bytes=2 * GB) for part in store.parts)
    large = replace(CLOSURE, operators=(replace(one, stores=(replace(store, parts=parts),)),))
    assert "4 GB in files, compressed" in found(check_heap(large, {}, None))["large-heap-state"].cause


def test_rocksdb_is_not_in_the_heap() -> None:
    closure, _ = planned("4.3.0/rocksdb-window")
    assert not [*check_heap(closure, held(9 * GB), conf())]
