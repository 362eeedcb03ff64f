"""The benchmark measures what it says, on a checkpoint that Streambank really reads."""

from __future__ import annotations

from pathlib import Path

from bench import copies
from bench.__main__ import report
from bench.executors import Rate
from bench.running import Cost
from bench.workloads import LARGE, SMALL, Workload, add_batch, build
from streambank.checkpoint.reader import CheckpointReader
from streambank.storage import open_store

TINY = Workload("tiny", partitions=3, snapshot_bytes=5000, delta_bytes=100, deltas=2)


def test_one_more_batch_is_two_percent_of_either_workload() -> None:
    for workload in (LARGE, SMALL):
        whole = workload.partitions * (workload.snapshot_bytes + workload.delta_bytes * (workload.deltas + 1))
        share = workload.partitions * workload.delta_bytes / whole
        assert 0.015 < share < 0.025


def test_the_checkpoints_are_ones_that_streambank_reads(tmp_path: Path) -> None:
    build(tmp_path, TINY)
    reader = CheckpointReader(open_store(tmp_path))
    assert reader.last_committed() == TINY.first_batch
    add_batch(tmp_path, TINY, TINY.first_batch + 1)
    closure = reader.closure()
    assert closure.batch == TINY.first_batch + 1
    assert len([file for file in closure.files if file.path.endswith(".delta")]) >= 3 * 3


def test_every_figure_is_measured_in_every_round(tmp_path: Path) -> None:
    said: list[str] = []
    measured = copies.measure(TINY, tmp_path, 2, said.append)
    assert [one.what for one in measured] == [
        "cp -r",
        "take, full",
        "take, 2 % changed",
        "take, unchanged",
        "verify, full",
        "restore",
    ]
    by_name = {one.what: one for one in measured}
    full, changed = by_name["take, full"].moved_bytes, by_name["take, 2 % changed"].moved_bytes
    assert full is not None and changed is not None and 0 < changed < full / 5
    assert by_name["take, unchanged"].moved_bytes == 0
    assert by_name["cp -r"].ratio == 1
    assert len(said) == 2
    assert not list(tmp_path.iterdir())
    cost = Cost(100, 101, 50, 49, 10, 0.1, 0, 2)
    rates = [Rate("two workers", "take, full", 6.5, 2.0, 300 << 20)]
    page = report({"tiny": measured}, cost, rates, 2, "make bench", 1.0, 0.5)
    assert "| two workers | take, full | 6.5 s | 150 MiB/s |" in page
    assert "| take, full |" in page and "101 ms (+1.0 %)" in page
