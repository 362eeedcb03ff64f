"""The benchmark measures what it says, on a checkpoint that Streambank really reads."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench import copies, limits, memory, peers
from bench.copies import OURS, Once, Row
from bench.executors import Rate
from bench.limits import Limits
from bench.peers import Peer, missing
from bench.report import Report
from bench.running import GENTLE, PLAIN, QUIET, Arm
from bench.workloads import LargeFiles, SmallFiles, Workload
from streambank.checkpoint.reader import CheckpointReader
from streambank.storage import open_store

LARGE = LargeFiles(partitions=2, files=50, file_bytes=3000)
SMALL = SmallFiles(partitions=2, file_bytes=100)
HERE = Peer("cp -r, as a peer", "coreutils", "cp", ["-r", "{source}", "{target}"], again=False)
GONE = Peer("gone", "gone-package", "no-such-program", [])


def test_what_one_more_batch_changes() -> None:
    usual = LargeFiles()
    assert usual.partitions * usual.files * usual.file_bytes == 2_000_000_000
    assert usual.replaced / usual.files == 0.02
    assert SmallFiles().partitions * 100 == 100_000


@pytest.mark.parametrize(("workload", "share"), [(LARGE, 1.0), (SMALL, 0.17)], ids=["large", "small"])
def test_the_checkpoints_are_ones_that_streambank_reads(
    tmp_path: Path, workload: Workload, share: float
) -> None:
    workload.build(tmp_path)
    reader = CheckpointReader(open_store(tmp_path))
    before = reader.closure()
    state = [file for file in before.files if file.role.startswith("state")]
    there = [
        path for path in tmp_path.glob("state/0/[01]/**/*") if path.is_file() and "_" not in path.parent.name
    ]
    assert len(state) / len(there) == pytest.approx(share, abs=0.01)
    workload.add_batch(tmp_path)
    assert reader.closure().batch == before.batch + 1


def test_every_figure_is_measured_in_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PEERS", (HERE, GONE))
    said: list[str] = []
    table = copies.measure(LARGE, tmp_path, 2, 1, time.monotonic() + 600, said.append)
    assert [row.what for row in table.rows] == ["cp -r", *OURS, HERE.name]
    assert {row.what: len(row.rounds) for row in table.rows} == {
        "cp -r": 4,
        **dict.fromkeys(OURS, 2),
        HERE.name: 1,
    }
    assert table.row("cp -r").ratio == pytest.approx(1, abs=0.5)
    assert table.read_files == table.changed_files == 2 * 2 + 2
    assert 0 < table.changed_bytes < table.saved_bytes / 10
    assert len(said) == 3
    assert not list(tmp_path.iterdir())

    arms = [
        Arm(QUIET, [[100, 101]]),
        Arm(PLAIN, [[110, 112]], [0.1], 4, 1),
        Arm(GENTLE, [[101, 101]], [0.2], 2),
    ]
    can = Limits(2, 2000, 4000, 1500, 200)
    rates = [Rate("two workers", "take, full", 6.5, 2.0, 300_000_000)]
    page = Report("make bench", 5.0, 0.5, can, [table], arms, None, rates).page()
    assert "| two workers | take, full | 6.5 s | 150 MB/s |" in page
    assert "| take, full |" in page and f"| {GENTLE} | 101 ms |" in page
    assert max(len(line) for line in page.splitlines() if not line.startswith("|")) <= 110


def test_rounds_that_no_longer_fit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "PEERS", ())
    table = copies.measure(SMALL, tmp_path, 9, 0, time.monotonic(), lambda text: None)
    assert len(table.row(copies.FULL).rounds) == 1


def test_figures_of_rounds_are_put_together() -> None:
    row = Row("x", [Once(2.0, 2.0, 2.0, 0.5), Once(4.0, 2.0, 0.0, 0.9), Once(1.0, 1.0, 0.5, 0.4)])
    assert (row.seconds, row.ratio, row.spread, row.cores) == (2.0, 0.5, (0.4, 0.9), 1.0)
    assert row.others == 0.5
    can = Limits(2, 1, 1, 1, 1)
    assert can.reason(1.7, 0.9).startswith("processors")
    assert can.reason(1.0).startswith("one processor") and can.reason(0.3).startswith("the disk")
    assert can.reason(0.3, 0.9).startswith("other work") and limits.waiting_s() >= 0


def test_absent_tools_are_named_with_their_packages() -> None:
    assert missing([HERE]) == ""
    assert missing([HERE, GONE]) == (
        "Not installed, so not measured: no-such-program (Debian: apt-get install gone-package)."
    )
    assert {peer.program for peer in peers.PEERS} == {"sh", "cp", "rsync", "restic", "borg", "rclone"}


def test_the_limits_of_a_machine_are_positive(tmp_path: Path) -> None:
    can = limits.measure(tmp_path, 2)
    assert min(can.cores, can.hash_one, can.hash_all, can.cached, can.disk) > 0
    assert not list(tmp_path.iterdir())


def test_a_plan_of_many_files_takes_little_memory() -> None:
    """A tenth of the million that the page is about."""
    found = memory.measure(100_000)
    assert found["listed"] > 100_000 and found["closure"] == 17_006
    assert found["start_mb"] < found["listing_mb"] <= found["plan_mb"] <= found["peak_mb"] < 90
