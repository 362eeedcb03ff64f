"""The benchmark of state stores: its figures, its page, and all of it on a few keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.stores import __main__ as stores
from bench.stores import page
from bench.stores.kinds import KINDS
from bench.stores.live_rows import CASES
from bench.stores.memory import VARIANTS
from bench.stores.rooms import Cell
from bench.stores.rows import write_rows
from streambank.advice.measured import FILE, read_measurements
from streambank.doctor.checks.rocksdb import CHANGELOG
from tests.support.paths import ROOT


def batch(ms: int, **metrics: int) -> dict[str, Any]:
    return {"batch_ms": ms, "commit_ms": ms // 2, "memory_bytes": 10 * ms, "metrics": metrics}


def files(changes: int, snapshots: int, count: int) -> dict[str, int]:
    return {"changes_bytes": changes, "snapshot_bytes": snapshots, "snapshots": count}


def room(*, changes: int = 400, restart_s: float = 2.0) -> dict[str, Any]:
    return {
        "restart_s": restart_s,
        "native_bytes": 30,
        "peak_bytes": 40,
        "heap_bytes": -5,
        "state_bytes": 50,
        "stages": [
            {"batches": [batch(9)], "files": files(1, 0, 0), "cpu_ms": 9.0},
            {
                "cpu_ms": 240.0,
                "batches": [batch(10), batch(30), batch(20, rocksdbPutCount=2, rocksdbTotalBytesWritten=178)],
                "files": files(3 * changes, 8000, 4),
            },
        ],
    }


def test_a_cell_has_the_shortest_batch_and_medians_of_all_else() -> None:
    cell = Cell()
    cell.add(room(), [0.1])
    cell.add(room(restart_s=4.0), [0.1])
    found = cell.figures(4)
    assert (found["restart_s"], found["heap_bytes"], found["memory_bytes"]) == (3.0, 0, 300)
    batches = found["shares"]["0.1"]
    assert (batches["batch_ms"], batches["median_ms"], batches["cpu_ms"], batches["batches"]) == (
        10,
        20,
        80,
        6,
    )
    assert found["shares"]["0.1"]["written_bytes"] == 400 + 8000 / 10  # and a tenth of a snapshot
    assert cell.row_bytes() == 74


def test_a_store_without_changes_writes_whole_files() -> None:
    cell = Cell()
    cell.add(room(changes=0), [0.1])
    assert cell.figures(4)["shares"]["0.1"]["written_bytes"] == 8000 // 3


def test_crossings_are_between_two_numbers_of_keys() -> None:
    assert "every number of keys" in page.crossing([(10, 0.5), (100, 0.2)])
    assert "up to 100" in page.crossing([(10, 1.5), (100, 1.2)])
    assert "from some 1,000 keys on" in page.crossing([(100, 2.0), (10_000, 0.5)])
    assert "up to some 1,000 keys (" in page.crossing([(100, 0.5), (10_000, 2.0)])
    assert "from some 1,000 keys on" in page.crossing([(10, 0.9), (100, 2.0), (10_000, 0.5)])


def test_a_row_says_what_limits_it() -> None:
    def said(name: str, cpu_ms: int, commit_ms: int) -> str:
        return page.limit(name, {"batch_ms": 300, "cpu_ms": cpu_ms, "commit_ms": commit_ms}, 90)

    assert "planning" in said("hdfs", 100, 300)
    assert "delta" in said("hdfs", 300, 300)
    assert "RocksDB's files" in said("rocksdb", 300, 300)
    assert "rows" in said("rocksdb", 300, 30)


def test_numbers_of_keys_that_only_an_earlier_run_measured_stay() -> None:
    def part(given: str, *keys: int, rounds: int = 1, batches: int = 5) -> dict[str, Any]:
        cells = {"hdfs": {str(number): {"rounds": rounds, "from": given} for number in keys}}
        found = {"cells": cells, "batches": batches, "partitions": 4}
        return {"found": found, "given": given, "day": "", "seconds": 1, "load": 0.0, "machine": ""}

    def kept(found: dict[str, Any]) -> dict[str, str]:
        return {keys: one["from"] for keys, one in found["found"]["cells"]["hdfs"].items()}

    first = page.with_earlier(part("a", 10, 20, 30), None)
    second = page.with_earlier(part("b", 10), first)
    third = page.with_earlier(part("c", 20, rounds=3), second)
    assert kept(third) == {"10": "b", "20": "c", "30": "a"}
    assert [(one["given"], one["keys"]) for one in third["earlier"]] == [("a", [30]), ("b", [10])]
    assert "earlier" not in page.with_earlier(part("d", 10, batches=2), third), "figures of other batches"
    assert page.with_earlier(part("e", 10, 20, 30), third)["earlier"] == []


def test_variants_set_what_the_calculator_has() -> None:
    usual, *_, bounded = (one.conf for one in VARIANTS)
    assert usual == KINDS["rocksdb-changelog"].conf and usual[CHANGELOG] == "true"
    assert bounded["spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"] == "32"


def test_the_command_of_a_part_has_its_options_only() -> None:
    asked = stores.arguments(["--keys", "10", "--memory-keys", "5", "--rounds", "1"])
    assert asked.given == {"stores": " --keys 10 --rounds 1", "memory": " --memory-keys 5", "rows": ""}
    assert stores.arguments([]).given["stores"] == ""
    with pytest.raises(SystemExit):
        stores.arguments(["nothing"])


def test_rows_are_drawn_from_the_keys(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_rows(tmp_path / "0.parquet", 50, 50)
    write_rows(tmp_path / "1.parquet", 20, 50)
    assert pq.read_table(tmp_path / "0.parquet")["id"].to_pylist() == list(range(50))
    drawn = pq.read_table(tmp_path / "1.parquet")["id"].to_pylist()
    assert len(drawn) == 20 and set(drawn) <= set(range(50)) and drawn != list(range(20))


def test_the_guide_shows_the_measurements_of_the_release() -> None:
    found = json.loads(FILE.read_text())
    guide = (ROOT / "docs/guide/state-stores.md").read_text()
    assert page.with_summary(guide, found) == guide
    figures = (ROOT / "bench/STORES.md").read_text()
    assert found["command"] in figures
    for name in found["stores"]:
        assert f"| {KINDS[name].title} |" in figures
    for title in [*(one.title for one in VARIANTS), *(one.title for one in CASES)]:
        assert f"| {title} |" in figures
    assert max(len(line) for line in figures.splitlines() if not line.startswith(("|", "-"))) <= 110


@pytest.mark.storm
@pytest.mark.timeout(1800)
def test_all_of_it_on_a_few_keys(tmp_path: Path) -> None:
    where = [f"--{name}={tmp_path / name}" for name in ("raw", "output", "measurements")]
    few = [
        "--keys",
        "500",
        "1000",
        "--stores",
        "hdfs",
        "rocksdb-v2",
        "--rounds",
        "1",
        "--batches",
        "1",
        "--memory-keys",
        "2000",
        "--heap-mb",
        "600",
    ]
    assert stores.main([*few, *where, f"--folder={tmp_path}"]) == 0
    found = read_measurements(tmp_path / "measurements")
    assert set(found.stores) == {"hdfs", "rocksdb-v2"}
    assert found.row_bytes == 74
    for measured in found.stores.values():
        assert [one.keys for one in measured] == [500, 1000]
        assert all(
            each.batch_ms > 0 and each.written_bytes > 0 for one in measured for each in one.shares.values()
        )
    text = (tmp_path / "output").read_text()
    assert "## Where they cross" in text and "| bounded, 32 MiB |" in text
    raw = json.loads((tmp_path / "raw").read_text())
    assert all(each["counted_bytes"] > 0 for each in raw["memory"]["found"]["variants"])
    assert all(min(rows) > 0 for rows in raw["rows"]["found"])
