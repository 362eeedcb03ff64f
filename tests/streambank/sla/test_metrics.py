"""The table of metrics: the same in the code, in the docs, and in what is measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streambank.sla.history.unmanaged import measure_checkpoint
from streambank.sla.metrics import METRICS, unit_of
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.paths import ROOT
from tests.support.sla.progress_records import RECORDED, held, recorded

PAGE = ROOT / "docs/reference/sla.md"

ROWS = [
    row.split(" | ")
    for row in re.findall(r"^\| (`\w+`.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
]
"""Each metric of the page: name, unit, meaning, source, sum, and what stands for it without the runner."""


NAMES = [
    *("input_rows", "state_rows", "state_bytes", "state_memory_bytes"),
    *("updated_rows", "removed_rows", "dropped_rows"),
    *("batch_s", "wal_s", "state_commit_s", "commit_s", "checkpoint_s", "get_ms", "put_ms"),
    *("snapshot_age_batches", "watermark_lag_s", "source_lag_rows", "gap_s"),
    *("checkpoint_bytes", "checkpoint_files", "oldest_snapshot_age_batches"),
]


def test_names_are_for_ever() -> None:
    assert list(METRICS) == NAMES


def test_the_page_begins_with_the_metrics_of_a_batch_and_their_units() -> None:
    assert [row[:2] for row in ROWS[: len(METRICS)]] == [[f"`{name}`", unit_of(name)] for name in METRICS]


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
    assert found == {row[0].strip("`") for row in ROWS[: len(METRICS)] if row[5] != "-"}
