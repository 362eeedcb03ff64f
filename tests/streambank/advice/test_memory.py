"""RocksDB's memory in an executor, by the formula; what is measured beside it: bench/STORES.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streambank.advice.memory import (
    Cluster,
    MemoryPlan,
    RocksDBSettings,
    StateLoad,
    memtable_bytes,
    plan_memory,
)
from streambank.core.errors import InputError
from streambank.doctor.spark_conf import MIB
from tests.support.refuses import refuses

CLASSIC = RocksDBSettings(write_buffer_bytes=128 * MIB, write_buffers=2)
TEN_GB = StateLoad(10 * 1024 * MIB // 100, 100, 40)


def parts(plan: MemoryPlan) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {part.name: (part.each, part.executor, part.most) for part in plan.parts}


def test_the_classic_example_of_flink() -> None:
    """10 GB of state, two write buffers of 128 MB, three states, each of which is a column family there."""
    plan = plan_memory(replace(CLASSIC, column_families=3), Cluster(partitions=1), TEN_GB)
    found = parts(plan)
    assert found["write buffers"] == (768 * MIB, 768 * MIB, 768 * MIB)  # 128 MB * 2 * 3
    assert found["block cache"] == (24 * MIB, 24 * MIB, 24 * MIB)  # Flink: 8 MB of each column family
    assert found["indexes"][0] == 136_314_879  # 130 MiB: 52 B for each of 2,621,440 blocks
    assert found["filters"][0] == 134_217_727  # 128 MiB: 10 bits for each of 107,374,182 rows
    assert plan.expected is not None and plan.expected // MIB == 1049


def test_the_classic_example_in_spark() -> None:
    """Its column families are virtual: three variables of one operator share the write buffers of a store."""
    one_operator = plan_memory(CLASSIC, Cluster(partitions=1), TEN_GB)
    assert parts(one_operator)["write buffers"][1] == 256 * MIB
    three_stores = plan_memory(CLASSIC, Cluster(partitions=1, stores=3), TEN_GB)
    assert parts(three_stores)["write buffers"][1] == 768 * MIB


def test_every_partition_of_every_store_is_an_instance() -> None:
    join = Cluster(executors=3, partitions=16, stores=4)
    assert (join.instances(), join.instances(2)) == (22, 32)
    plan = plan_memory(RocksDBSettings(), join)
    assert (plan.instances, plan.after_loss) == (22, 32)
    assert plan.most == 22 * (8 + 2 * 64) * MIB
    assert plan.expected is None  # nothing is known of the state
    assert any("32 instances" in one for one in plan.warnings)


def test_write_buffers_live_from_flush_to_flush() -> None:
    settings = RocksDBSettings()
    assert memtable_bytes(settings, 0, 100) == MIB
    assert memtable_bytes(settings, 25_000, 74) == 3 * MIB  # 25,000 * (74 + 24) B, in blocks of 1 MiB
    assert memtable_bytes(settings, 10**9, 100) == 64 * MIB  # a full one is flushed beside the next one
    assert memtable_bytes(replace(settings, write_buffer_bytes=2 * MIB), 1, 100) == MIB // 4
    load, cluster = StateLoad(1_000_000, 74, 41, 0.1), Cluster(partitions=4)
    with_changelog = plan_memory(replace(settings, changelog=True), cluster, load)
    without = plan_memory(settings, cluster, load)
    assert parts(with_changelog)["write buffers"][0] == 24 * MIB  # 250,000 rows of ten batches
    assert parts(without)["write buffers"][0] == 3 * MIB  # 25,000 rows of one


def test_a_bound_holds_for_all_instances_together() -> None:
    settings = RocksDBSettings(bounded=True, max_memory_bytes=400 * MIB)
    plan = plan_memory(settings, Cluster(partitions=64), StateLoad(10**9, 100))
    assert plan.most == plan.expected == 400 * MIB
    assert parts(plan)["write buffers"][2] == 200 * MIB
    assert plan.resident == 400 * MIB * 3 // 2 + 64 * MIB
    assert plan.memory_overhead == 1088 * MIB  # 384 + 600 + 64, rounded up to 64
    assert any("Indexes and filters" in one for one in plan.warnings)
    assert any("soft" in one for one in plan.warnings)


def test_a_bound_that_flushes_all_the_time_is_named() -> None:
    tight = RocksDBSettings(bounded=True, max_memory_bytes=64 * MIB)
    (warning, *_) = plan_memory(tight, Cluster(partitions=200)).warnings
    assert "Set spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB to 458" in warning
    roomy = replace(tight, max_memory_bytes=458 * MIB)
    assert not [one for one in plan_memory(roomy, Cluster(partitions=200)).warnings if "flushes" in one]


def test_the_overhead_has_the_jvm_in_it() -> None:
    large = plan_memory(RocksDBSettings(), Cluster(partitions=1, heap_bytes=10 * 1024 * MIB))
    assert large.jvm_overhead == 1024 * MIB
    assert large.memory_overhead >= large.jvm_overhead + large.resident
    assert large.memory_overhead % (64 * MIB) == 0


def test_idle_cores_are_named() -> None:
    plan = plan_memory(RocksDBSettings(), Cluster(executors=4, cores=4, partitions=8))
    assert any("8 of 16 cores" in one for one in plan.warnings)


@pytest.mark.parametrize(
    "settings",
    [
        RocksDBSettings(write_buffer_ratio=0.9, high_priority_ratio=0.1),
        RocksDBSettings(write_buffer_ratio=-0.1),
        RocksDBSettings(block_cache_bytes=0),
        RocksDBSettings(write_buffers=0),
    ],
)
def test_settings_that_spark_refuses_are_refused(settings: RocksDBSettings) -> None:
    with refuses(InputError, "bad-input"):
        plan_memory(settings, Cluster())


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_ratios_and_shares_that_are_not_numbers_are_refused(number: float) -> None:
    for settings in (
        RocksDBSettings(bounded=True, write_buffer_ratio=number),
        RocksDBSettings(bounded=True, high_priority_ratio=number),
    ):
        with pytest.raises(InputError):
            plan_memory(settings, Cluster())
    with pytest.raises(InputError, match="--update-share"):
        plan_memory(RocksDBSettings(), Cluster(), StateLoad(10, update_share=number))
