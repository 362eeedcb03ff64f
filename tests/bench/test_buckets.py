"""The benchmark on S3 measures what it says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench import buckets
from bench.buckets import CHANGED, FULL, OURS, PUTS, UNCHANGED
from bench.limits import Limits
from bench.peers import Peer
from bench.report import Report
from bench.workloads import SmallFiles

SMALL = SmallFiles(partitions=3, file_bytes=100)
GONE = Peer("gone", "gone-package", "no-such-program", [])


@pytest.mark.storm
def test_every_figure_is_measured_and_small_files_cost_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "PEERS", (GONE,))
    said: list[str] = []
    table = buckets.measure(SMALL, tmp_path, 1, 1, time.monotonic() + 600, said.append)
    assert [row.what for row in table.rows] == [PUTS, *OURS]
    assert table.row(PUTS).ratio == pytest.approx(1)
    assert table.writes[PUTS] == table.saved_files > 50
    assert 0 < table.writes[FULL] < 10
    assert table.writes[UNCHANGED] < table.writes[CHANGED] < 10
    assert len(said) == 2
    assert not list(tmp_path.iterdir())

    page = Report("make bench", 5.0, 0.5, Limits(2, 2000, 4000, 1500, 200), [], [], None, (), [table]).page()
    assert "## Many small files, to S3" in page and f"| {FULL} |" in page
    assert max(len(line) for line in page.splitlines() if not line.startswith("|")) <= 110
