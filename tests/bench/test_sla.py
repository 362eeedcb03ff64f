"""The benchmark of measuring and judging measures what it says."""

from __future__ import annotations

from bench import histories, judging, sla
from bench.histories import LINES, MadeUpFiles
from streambank.sla.history.history import HistoryScan, Records


def test_made_up_files_are_records_that_the_engine_reads() -> None:
    store = MadeUpFiles(LINES + 10)
    records = Records(store, [f"progress/main/{name}" for name in store.names()])
    assert len(records.keys) == 2
    scan = HistoryScan(records)
    points = list(scan)
    assert ([point.batch for point in points], scan.notes()) == (list(range(LINES + 10)), ())
    assert {"state_bytes", "get_ms", "watermark_lag_s", "source_lag_rows", "gap_s"} <= set(points[-1].values)
    newest = records.newest()
    assert newest is not None and newest.batch == LINES + 9
    key = records.keys[0]
    assert store.read(key, 0, 1024) == store.read(key)[:1024]


def test_the_page_has_each_room() -> None:
    long = histories.main(6_000)
    assert long["agree"]
    assert "state_bytes grows by" in long["growth"], long["growth"]
    many = judging.main(3)
    assert many["verdicts"] == 3 * 15 and sum(many["levels"].values()) == 3
    stretches = [{"measured": one, "batches_ms": [100, 104, 102]} for one in (True, False)]
    page = sla.page(
        "Made.",
        {"query": {"stretches": stretches, "cpu_s": 0.1, "written": 50}, "jobs": many, "history": long},
    )
    assert "| with progress records | 102 ms | 3 | 1.000 | 1.00, 1.00 |" in page
    assert "6,000 progress records" in page and "The verdicts are the same" in page
    assert max(len(line) for line in page.splitlines() if not line.startswith("|")) <= 110
