"""The flights replayer: all departures, in order, once."""

from __future__ import annotations

import itertools
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.flights import replay


@pytest.fixture(scope="module")
def flights() -> list[dict[str, Any]]:
    return replay.departures(replay.data_dir())


def written(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("flights-*.json"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_all_departures_of_the_year_in_order_of_event_time(flights: list[dict[str, Any]]) -> None:
    assert len(flights) == 336_776
    assert all(one["event_time"] <= two["event_time"] for one, two in itertools.pairwise(flights))
    assert flights[0]["event_time"] == "2013-01-01T10:15:00Z"
    assert flights[0] == {
        "event_time": "2013-01-01T10:15:00Z",
        "origin": "EWR",
        "dest": "IAH",
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "dep_delay_min": 2,
        "arr_delay_min": 11,
        "distance_miles": 1400,
        "temp_f": 39.02,
        "wind_mph": 12.658579999999999,
        "precip_in": 0.0,
        "visibility_miles": 10.0,
    }
    assert sum(flight["dep_delay_min"] is None for flight in flights) == 8255
    assert sum(flight["tailnum"] is None for flight in flights) == 2512


def test_files_are_written_in_order_each_younger_and_the_last_one_closes(
    tmp_path: Path, flights: list[dict[str, Any]]
) -> None:
    done = replay.replay(flights[:1000], tmp_path, rows_per_file=300, gap_ms=0)
    assert (done.files, done.rows, done.written) == (5, 1000, 5)
    files = sorted(tmp_path.glob("flights-*.json"))
    milliseconds = [path.stat().st_mtime_ns // 1_000_000 for path in files]
    assert all(one < two for one, two in itertools.pairwise(milliseconds))
    *rows, closing = written(tmp_path)
    assert rows == flights[:1000]
    last = datetime.fromisoformat(rows[-1]["event_time"])
    assert set(closing) == {"event_time"}
    assert datetime.fromisoformat(closing["event_time"]) == last + replay.CLOSING_AFTER


def test_an_interrupted_replay_goes_on_and_writes_nothing_twice(
    tmp_path: Path, flights: list[dict[str, Any]]
) -> None:
    replay.replay(flights[:1000], tmp_path, rows_per_file=300, gap_ms=0)
    files = sorted(tmp_path.glob("flights-*.json"))
    before = {path: path.read_bytes() for path in files}
    for path in files[3:]:
        path.unlink()
    (tmp_path / ".flights-000003.json.tmp").write_text("half a")
    done = replay.replay(flights[:1000], tmp_path, rows_per_file=300, gap_ms=0)
    assert done.written == 2
    assert {path: path.read_bytes() for path in sorted(tmp_path.glob("flights-*.json"))} == before


def test_another_replay_in_the_same_folder_is_refused(tmp_path: Path, flights: list[dict[str, Any]]) -> None:
    replay.replay(flights[:10], tmp_path, rows_per_file=5, gap_ms=0)
    with pytest.raises(ValueError, match="use an empty folder"):
        replay.replay(flights[:10], tmp_path, rows_per_file=3, gap_ms=0)


def test_speed_is_event_time_per_second(
    tmp_path: Path, flights: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(replay, "_sleep_until", waited.append)
    monkeypatch.setattr("spark_jobs.flights.replay.time.monotonic", lambda: 100.0)
    replay.replay(flights[:100], tmp_path, rows_per_file=50, speed=600.0, gap_ms=0)
    paced = [moment for moment in waited if moment > 100.0]
    first, last = (datetime.fromisoformat(flights[i]["event_time"]) for i in (0, 99))
    assert paced[-1] == pytest.approx(100.0 + (last - first).total_seconds() / 600.0)


def test_wrong_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        replay.main([str(tmp_path), "--rows-per-file", "0"])
    assert "at least 1" in capsys.readouterr().err
    assert replay.main([str(tmp_path), "--data", str(tmp_path / "nowhere")]) == 2
