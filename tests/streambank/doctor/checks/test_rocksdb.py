"""RocksDB: uploads with each batch, memory outside of the heap."""

from __future__ import annotations

import pytest

from streambank.doctor.checks.rocksdb import check_changelog, check_memory
from streambank.doctor.spark_conf import SparkConf
from streambank.sla.history.point import Point
from tests.support.checkpoint.doctor_inputs import conf, found, planned, skipped
from tests.support.sla.progress_records import at, operator

PLAIN = "4.3.0/rocksdb-window"
GIB, MIB = 1 << 30, 1 << 20
BOUND = {"spark__sql__streaming__stateStore__rocksdb__boundedMemoryUsage": "true"}
MOST = "spark__sql__streaming__stateStore__rocksdb__maxMemoryUsageMB"


def batches(commit_s: float, batch_s: float = 2.0, count: int = 9) -> list[Point]:
    values = {"state_commit_s": commit_s, "batch_s": batch_s, "updated_rows": 50_000.0}
    return [Point(at(number), number, values=values) for number in range(count)]


@pytest.mark.parametrize(
    ("name", "commit_s", "expected"),
    [
        (PLAIN, 1.0, True),
        (PLAIN, 0.4, False),
        ("4.3.0/rocksdb-changelog-window", 1.0, False),
        ("4.3.0/ids-changelog-window", 1.0, False),
        ("4.3.0/hdfs-window", 1.0, False),
    ],
)
def test_uploads_are_named_where_batches_wait_for_them(name: str, commit_s: float, expected: bool) -> None:
    closure, planner = planned(name)
    seen = found(check_changelog(closure, planner.index, batches(commit_s)))
    assert set(seen) == ({"rocksdb-without-changelog"} if expected else set())
    if expected:
        cause = seen["rocksdb-without-changelog"].cause
        assert "takes 1 s, 50%, and 50,000 state rows are written (medians of 9 batches)" in cause


def test_short_commits_are_nothing_and_few_records_are_said() -> None:
    closure, planner = planned(PLAIN)
    assert not [*check_changelog(closure, planner.index, batches(0.1, 0.2))], "a tenth of a second is no harm"
    (told,) = skipped(check_changelog(closure, planner.index, []))
    assert "no progress records" in told.why
    (told,) = skipped(check_changelog(closure, planner.index, batches(1.0, count=2)))
    assert "Only 2 batches" in told.why


@pytest.mark.parametrize(
    ("used", "settings", "machine", "severity"),
    [
        (0, conf(), 4 * GIB, None),
        (0, conf(), GIB + 200 * MIB, "info"),
        (120 * MIB, conf(), GIB + 200 * MIB, "warning"),
        (None, conf(), GIB + 200 * MIB, "warning"),
        (180 * MIB, conf(), GIB + 190 * MIB, "error"),
        (0, conf(spark__driver__memory="4g"), 4 * GIB, "warning"),
        (0, conf("yarn", spark__executor__instances="1"), None, None),
        (
            200 * MIB,
            conf("yarn", spark__executor__instances="1", spark__executor__memoryOverhead="256"),
            None,
            "warning",
        ),
        (None, conf("k8s://x", spark__executor__instances="1", **BOUND), None, "warning"),
        (0, conf("k8s://x", spark__executor__instances="1", **BOUND, **{MOST: "100"}), None, None),
        (0, conf("yarn", spark__executor__instances="1", spark__executor__memory="40g", **BOUND), None, None),
        (400 * MIB, conf("yarn", spark__executor__instances="1", **BOUND, **{MOST: "100"}), None, "error"),
    ],
)
def test_memory_is_held_against_what_is_beside_the_heap(
    used: int | None, settings: SparkConf, machine: int | None, severity: str | None
) -> None:
    closure, _ = planned(PLAIN)
    said = {} if used is None else {0: [operator(memoryUsedBytes=used)]}
    finding = found(check_memory(closure, said, settings, machine)).get("rocksdb-memory")
    assert (finding.severity if finding else None) == severity


def test_the_evidence_says_how_it_comes_about() -> None:
    closure, _ = planned(PLAIN)
    settings = conf("yarn", spark__executor__instances="1", spark__executor__memoryOverhead="256")
    cause = found(check_memory(closure, {}, settings, None))["rocksdb-memory"].cause
    assert "each of 2 stores has a block cache of 8 MiB and up to 2 write buffers of 64 MiB" in cause
    assert "(spark.executor.memoryOverhead=256)" in cause


def test_what_cannot_be_known_is_said() -> None:
    closure, _ = planned(PLAIN)
    for settings, why in (
        (None, "not declared as a job"),
        (conf("yarn"), "does not say how many executors"),
        (
            conf("spark://h:7077", spark__executor__instances="2"),
            "is not known with the master spark://h",
        ),
    ):
        (told,) = skipped(check_memory(closure, {}, settings, GIB))
        assert why in told.why
    hdfs, _ = planned("4.3.0/hdfs-window")
    assert not [*check_memory(hdfs, {}, None, GIB)]
