"""Which store is chosen, and why: by measurements that are made up, so that each rule is seen."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from streambank.advice.measured import Measured, Measurements, Updated
from streambank.advice.memory import Cluster
from streambank.advice.stores import StoreRequest, advise
from streambank.core.errors import InputError
from streambank.doctor.spark_conf import MIB

GIB = 1024 * MIB


def cell(keys: int, batch_ms: float, heap: float, native: float, restart_s: float = 1.0) -> Measured:
    shares = {
        share: Updated(batch_ms * factor, 10, 2 * batch_ms * factor, 1000)
        for share, factor in ((0.01, 1.0), (0.1, 2.0))
    }
    return Measured(keys, restart_s, heap, native, 1e6, shares)


FOUND = Measurements(
    "2026-11-27", "python -m bench.stores", "4.3.0", "2 cores", 2, 4, 74, 0.5,
    {
        "hdfs": (cell(10_000, 100, 4e6, 0), cell(1_000_000, 1000, 4e8, 0)),
        "rocksdb": (cell(10_000, 400, 0, 2e7), cell(1_000_000, 1400, 0, 1e8)),
        "rocksdb-changelog": (cell(10_000, 200, 0, 2e7), cell(1_000_000, 700, 0, 1e8)),
        "rocksdb-v2": (cell(10_000, 50, 0, 2e7), cell(1_000_000, 300, 0, 1e8)),
    },
)  # fmt: skip


def asked(
    keys: int,
    *,
    share: float = 0.01,
    latency_s: float | None = None,
    heap: int = 8 * GIB,
    row_bytes: int = 74,
) -> StoreRequest:
    return StoreRequest(
        keys, row_bytes, share, latency_s, Cluster(executors=2, cores=2, partitions=8, heap_bytes=heap)
    )


def test_little_state_stays_in_the_heap_where_that_is_faster() -> None:
    advice = advise(asked(10_000), FOUND)
    assert advice.store == "hdfs" and advice.memory is None
    assert {one.name for one in advice.settings} == {
        "spark.sql.streaming.stateStore.providerClass",
        "spark.sql.shuffle.partitions",
    }
    assert any(
        "2.00 times as much of the processors with RocksDB with changelog" in one.text
        for one in advice.reasons
    )


def test_much_state_goes_to_rocksdb_with_a_changelog() -> None:
    advice = advise(asked(1_000_000), FOUND)
    assert advice.store == "rocksdb-changelog"
    settings = {one.name: one.value for one in advice.settings}
    assert settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] == "true"
    assert settings["spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage"] == "true"
    assert advice.memory is not None and advice.memory.most is not None
    bound = int(settings["spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"])
    assert bound * MIB == advice.memory.most >= 2 * (advice.memory.expected or 0) * 0.99
    assert settings["spark.executor.memoryOverhead"] == f"{advice.memory.memory_overhead // MIB}m"
    assert not [one for one in advice.memory.warnings if "flushes" in one]


def test_state_that_does_not_fit_the_heap_goes_to_rocksdb_even_if_the_heap_is_faster() -> None:
    small_heap = asked(30_000, heap=310 * MIB)
    assert advise(asked(30_000), FOUND).store == "hdfs"
    assert advise(small_heap, FOUND).store == "rocksdb-changelog"
    (first, *_) = advise(small_heap, FOUND).reasons
    assert "does not fit" in first.text


def test_rows_that_are_larger_take_more_of_the_heap() -> None:
    assert advise(asked(10_000, row_bytes=1_000_000), FOUND).store == "rocksdb-changelog"


def test_small_differences_do_not_grow_beyond_what_was_measured() -> None:
    """Their lines cross far above the measurements: at a million keys both are still the same."""
    cells = {**FOUND.stores, "rocksdb": (cell(10_000, 590, 0, 2e7), cell(1_000_000, 600, 0, 1e8))}
    found = replace(FOUND, stores=cells)
    assert advise(asked(1_000_000), found).store == "rocksdb-changelog"
    assert advise(asked(10_000_000), found).store == "rocksdb-changelog"


def test_every_sentence_has_its_measurement() -> None:
    advice = advise(asked(300_000, share=0.05, latency_s=1.0), FOUND)
    for reason in advice.reasons:
        assert "(Spark 4.3.0, 2 cores, 2026-11-27)" in reason.measurement
        assert "keys, " in reason.measurement and "batch " in reason.measurement
    assert all(one.reason.text and one.reason.measurement for one in advice.settings)


def test_figures_are_those_of_the_measurement_where_it_was_measured() -> None:
    expected = {one.store: one for one in advise(asked(1_000_000, share=0.1), FOUND).expected}
    assert expected["hdfs"].batch_ms == pytest.approx(2000)
    assert expected["rocksdb-changelog"].batch_ms == pytest.approx(1400)
    assert expected["hdfs"].heap_bytes == pytest.approx(4e8)


def test_a_latency_that_no_store_keeps_is_said() -> None:
    kept = advise(asked(1_000_000, latency_s=2.0), FOUND).reasons[-1].text
    assert "which is below the 2 s asked for" in kept and "by the clock" in kept
    missed = advise(asked(1_000_000, latency_s=0.5), FOUND).reasons[-1].text
    assert "more than 80% of the 0.5 s" in missed and "0.4 s are what any batch uses" in missed


def test_what_was_not_measured_is_said() -> None:
    unknown = " ".join(advise(asked(9_000_000, row_bytes=5_000), FOUND).unknown)
    assert "1,000,000 are the most that were measured" in unknown
    assert "rows of 5,000 B" in unknown
    assert "python -m bench.stores" in unknown
    assert "quiet machine" not in unknown
    busy = advise(asked(1000), replace(FOUND, load=19.5)).unknown
    assert any("19.5" in one and "quiet machine" in one for one in busy)
    assert "most that were measured" not in " ".join(advise(asked(1_000_000), FOUND).unknown)


def test_shares_above_the_measured_are_said() -> None:
    above = " ".join(advise(asked(1_000_000, share=0.5), FOUND).unknown)
    assert "How it is if 50% of the rows change: 10% is the most that was measured" in above
    assert "rows change: " not in " ".join(advise(asked(1_000_000, share=0.1), FOUND).unknown)


def test_python_workers_are_said_unless_they_are_counted() -> None:
    def unknown(cluster: Cluster) -> str:
        return " ".join(advise(replace(asked(1_000_000), cluster=cluster), FOUND).unknown)

    usual = Cluster(cores=2, partitions=8)
    said = unknown(usual)
    assert "What Python workers take beside the JVM" in said and "--python-worker" in said
    assert "Python workers" not in unknown(replace(usual, python_worker_bytes=100 * MIB))
    assert "Python workers" not in unknown(replace(usual, pyspark_bytes=512 * MIB))


def test_python_workers_have_an_overhead_where_state_is_in_the_heap_too() -> None:
    cluster = Cluster(cores=2, partitions=8, python_worker_bytes=100 * MIB)
    advice = advise(replace(asked(10_000), cluster=cluster), FOUND)
    assert advice.store == "hdfs"
    (overhead,) = [one for one in advice.settings if one.name == "spark.executor.memoryOverhead"]
    assert overhead.value == "640m"  # 384 + 2 * 100, in steps of 64
    assert overhead.reason.text == "384 MiB for the JVM itself, 200 MiB for 2 Python worker(s)."


@pytest.mark.parametrize(
    ("keys", "share", "latency_s"), [(0, 0.1, None), (10, 0.0, None), (10, 1.1, None), (10, 0.1, 0.0)]
)
def test_numbers_that_make_no_sense_are_refused(keys: int, share: float, latency_s: float | None) -> None:
    with pytest.raises(InputError):
        advise(asked(keys, share=share, latency_s=latency_s), FOUND)


def test_a_bound_is_twice_what_is_expected_without_it() -> None:
    advice = advise(asked(2_000_000, heap=310 * MIB), FOUND)
    text = next(one.reason.text for one in advice.settings if one.name.endswith("maxMemoryUsageMB"))
    said = re.search(
        "take ([0-9.]+) MB; this is twice that, rounded up. With it they take ([0-9.]+) MB", text
    )
    assert said is not None, text
    bound = int(next(one.value for one in advice.settings if one.name.endswith("maxMemoryUsageMB"))) * MIB
    assert 2 * float(said[1]) * 1e6 <= bound < 2 * float(said[1]) * 1e6 + 65 * MIB
    assert float(said[2]) > float(said[1]), "else one could stand for the other"


def test_state_that_doctor_would_warn_of_does_not_stay_in_the_heap() -> None:
    one = Cluster(executors=1, cores=2, partitions=8, heap_bytes=64 * GIB)
    large = replace(asked(9_000_000), cluster=one)  # 3.6 GB
    advice = advise(large, FOUND)
    assert advice.store == "rocksdb-changelog"
    assert "fits in the" in advice.reasons[0].text and "garbage collector" in advice.reasons[0].text
    assert not next(one for one in advice.expected if one.store == "hdfs").fits
    smaller = advise(asked(9_000_000, heap=64 * GIB), FOUND)  # 1.8 GB in each of two
    assert next(one for one in smaller.expected if one.store == "hdfs").fits
    assert "garbage collector" not in smaller.reasons[0].text


def test_far_beyond_what_was_measured_nothing_is_advised() -> None:
    near = advise(asked(10**7, latency_s=1, heap=310 * MIB), FOUND)
    assert all(one.batch_ms and one.written_bytes for one in near.expected)
    with pytest.raises(InputError, match="10,000,001 keys are more than 10 times the 1,000,000") as caught:
        advise(asked(10**7 + 1), FOUND)
    assert caught.value.code == "bad-input" and "python -m bench.stores" in caught.value.hint


def test_outside_of_the_heap_is_no_more_than_the_bound_that_is_advised() -> None:
    advice = advise(asked(10_000_000, heap=310 * MIB), FOUND)
    assert advice.memory is not None
    most = 2 * advice.memory.resident
    assert all(one.native_bytes <= most for one in advice.expected)
    free = replace(FOUND, stores={"rocksdb": (cell(10_000, 50, 0, 2e7), cell(10**7, 300, 0, 1e12))})
    held = advise(asked(10_000_000, heap=310 * MIB), free)
    assert held.memory is not None and held.expected[0].native_bytes == 2 * held.memory.resident
