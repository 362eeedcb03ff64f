"""The batch expectation, and the reading of what the applications wrote."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spark_jobs.flights import expected


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2013, 1, 1, hour, minute, tzinfo=UTC)


def flight(moment: datetime, delay: int | None = 0, **more: Any) -> dict[str, Any]:
    return {
        "event_time": moment,
        "origin": "JFK",
        "dest": "BOS",
        "carrier": "B6",
        "flight": 1,
        "tailnum": "N1",
        "dep_delay_min": delay,
        "temp_f": 40.0,
        **more,
    }


def test_a_window_is_due_when_the_watermark_has_reached_its_end() -> None:
    records = [flight(at(10, 5), 20), flight(at(10, 55), None), flight(at(11, 59), 3)]
    assert expected.hourly_delays(records) == []
    # An hour of delay after 12:00 is 11:00, the end of the first window.
    due = expected.hourly_delays([*records, flight(at(12))])
    assert due == [(at(10), "JFK", "B6", 2, 1, 1, 20, 20, 40.0, None, None, None)]
    closing = {"event_time": at(12) + timedelta(days=7)}
    assert [row[0] for row in expected.hourly_delays([*records, flight(at(12)), closing])] == [
        at(10),
        at(11),
        at(12),
    ]


def test_sessions_end_after_the_gap() -> None:
    records = [flight(at(1), 5), flight(at(2), 7), flight(at(14, 30), 1), {"event_time": at(23)}]
    rows = expected.aircraft_sessions(records)
    assert [(row[5], row[8], row[9]) for row in rows] == [(at(1), 1, 5), (at(1), 2, 12), (at(14, 30), 1, 1)]


def test_each_departure_stands_beside_the_one_before_of_its_flight_and_airport() -> None:
    way_back = next(n for n in range(1, 99) if zlib.crc32(f"B6{n}".encode()) % expected.WAY_BACK == 0)
    records = [
        flight(at(1), 5),
        flight(at(2), None, origin="LGA"),
        flight(at(3), 7, flight=way_back),
        flight(at(4), 9),
        flight(at(5), 2, flight=way_back, dest="ORD"),
        {"event_time": at(6)},
    ]
    assert expected.flight_history(records) == [
        ("NYC", "B61", at(1), 5, None, None, 1),
        ("NYC", "B61", at(2), None, at(1), 5, 2),
        ("BOS", f"B6{way_back}", at(3), 7, None, None, 1),
        ("NYC", "B61", at(4), 9, at(2), None, 3),
        ("ORD", f"B6{way_back}", at(5), 2, None, None, 1),
    ]


def test_only_committed_files_count(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()

    def entry(*names: str, action: str = "add") -> str:
        actions = (json.dumps({"path": f"file://{tmp_path}/{name}", "action": action}) for name in names)
        return "\n".join(["v1", *actions])

    (log / "0").write_text(entry("stale"))
    (log / "1.compact").write_text(entry("a", "b%20c"))
    (log / "2").write_text(entry("d"))
    (log / ".3.tmp").write_text("half")
    assert [path.name for path in expected.committed_files(tmp_path)] == ["a", "b c", "d"]
    assert expected.committed_files(tmp_path / "none") == []


def test_a_row_too_often_and_a_row_too_few_are_told_apart() -> None:
    same = expected.compare([(1,), (2,)], [(2,), (1,)])
    assert same.equal
    wrong = expected.compare([(1,), (2,)], [(1,), (1,)])
    assert (wrong.missing, wrong.surplus, wrong.equal) == ([(2,)], [(1,)], False)
    assert wrong.to_dict()["missing_sample"] == ["(2,)"]
