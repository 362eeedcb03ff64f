"""The table of metrics: the same in the code, in the docs, and in what is measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streambank.sla.history.unmanaged import measure_checkpoint
from streambank.sla.metrics import METRICS
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.paths import ROOT
from tests.support.sla.progress_records import RECORDED, held, recorded

PAGE = ROOT / "docs/reference/sla.md"

NAMES = [
    *("input_rows", "state_rows", "state_bytes", "state_memory_bytes"),
    *("updated_rows", "removed_rows", "dropped_rows"),
    *("batch_s", "wal_s", "state_commit_s", "commit_s", "checkpoint_s", "get_ms", "put_ms"),
    *("snapshot_age_batches", "watermark_lag_s", "source_lag_rows", "gap_s"),
    *("checkpoint_bytes", "checkpoint_files", "oldest_snapshot_age_batches"),
    *("savepoint_age_s", "replayable_for_s", "replica_age_s", "drill_age_s", "copy_age_s", "recovery_s"),
]


def test_names_are_for_ever() -> None:
    assert list(METRICS) == NAMES


def test_the_page_begins_with_the_same_table() -> None:
    rows = re.findall(r"^\| (`\w+`.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [row.split(" | ") for row in rows][: len(METRICS)] == [
        [f"`{one.name}`", one.unit, one.meaning, one.source, one.summed, one.unmanaged]
        for one in METRICS.values()
    ]


def test_units_are_in_the_names() -> None:
    for metric in METRICS.values():
        assert metric.name.rpartition("_")[2] == metric.unit, metric.name


@pytest.mark.parametrize("name", RECORDED)
def test_nothing_else_is_measured_of_a_batch(name: str) -> None:
    for point in held(recorded(name)).points:
        assert set(point.values) <= set(METRICS)
        for values in point.operators.values():
            assert set(values) <= set(METRICS)


def test_nor_of_a_checkpoint(tmp_path: Path) -> None:
    store = open_store(unpack("4.3.0/rocksdb-changelog-window", tmp_path) / "checkpoint")
    found = {name for point in measure_checkpoint(store).history.points for name in point.values}
    assert found <= set(METRICS)
    told = {name for name, metric in METRICS.items() if metric.unmanaged != "-"} - {"savepoint_age_s"}
    assert found == told
