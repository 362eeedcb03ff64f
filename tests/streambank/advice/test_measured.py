"""Measurements, and figures between them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streambank.advice.measured import TITLES, between, measurements, read_measurements


def test_those_of_the_release_have_all_stores() -> None:
    found = measurements()
    assert set(found.stores) == set(TITLES)
    for measured in found.stores.values():
        assert [one.keys for one in measured] == sorted(one.keys for one in measured)
        assert all(one.shares and one.restart_s > 0 for one in measured)
        assert all(each.batch_ms > 0 for one in measured for each in one.shares.values())
    assert found.command.startswith("python -m bench.stores")
    assert "cores" in found.machine and found.spark in found.origin


def test_a_figure_between_two_is_on_the_line_between_their_logarithms() -> None:
    points = [(10.0, 100.0), (1000.0, 400.0)]
    assert between(points, 100) == pytest.approx(200)
    assert between(points, 1) == 100
    assert between(points, 10) == 100
    assert between(points, 1000) == pytest.approx(400)
    assert between(points, 2980) == pytest.approx(1000)  # 300 for each 990 more
    assert between([(10.0, 5.0)], 100) == pytest.approx(50)  # in proportion
    assert between([(10.0, 100.0), (100.0, 50.0)], 1000) == pytest.approx(50)  # never less with more keys


def test_a_file_is_read_by_rising_keys(tmp_path: Path) -> None:
    cell = {
        "restart_s": 1.0, "heap_bytes": 1, "native_bytes": 2, "state_bytes": 3,
        "shares": {"0.1": {"batch_ms": 4, "commit_ms": 5, "cpu_ms": 7, "written_bytes": 6}},
    }  # fmt: skip
    head = {"made": "2026-11-27", "command": "c", "spark": "4.3.0", "machine": "2 cores", "rounds": 1}
    data = {
        **head,
        "partitions": 4,
        "row_bytes": 74,
        "load": 1.5,
        "stores": {"hdfs": {"1000": cell, "20": cell}},
    }
    file = tmp_path / "measurements.json"
    file.write_text(json.dumps(data))
    found = read_measurements(file)
    assert [one.keys for one in found.stores["hdfs"]] == [20, 1000]
    assert found.most_keys == 1000
    assert found.stores["hdfs"][0].shares[0.1].written_bytes == 6
