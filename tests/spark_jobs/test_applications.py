"""The flights applications, run as jobs on real data: what they wrote is what a batch computation gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_jobs.flights import expected, replay
from tests.support.drivers.real_driver import Job
from tests.support.paths import ROOT
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.storm]

FLIGHTS = ROOT / "spark_jobs/flights"


def drained(tmp_path: Path, application: str, *args: str) -> None:
    """Run an application until it has read everything, by a stop that drains."""
    source, output = tmp_path / "in", tmp_path / "out"
    job = Job(tmp_path, name=application)
    arguments: Sequence[str] = ["--input", str(source), "--output", str(output), *args]
    with job.driver(FLIGHTS / f"{application}.py", *arguments) as driver:
        driver.wait_committed(0)
        request = driver.control.requests.post("stop", epoch=driver.epoch, by={"user": "me"}, drain=True)
        assert driver.wait() == 0, driver.tail()
        answer = driver.control.requests.answer_to(request.number)
        assert answer is not None
        assert (answer["state"], answer["drained"]) == ("stopped", True)
        assert driver.batches("offsets") == driver.batches("commits")
        assert [record.batch for record in driver.progress()] == driver.batches("commits")
        facts = driver.control.query_facts()
        assert facts is not None
        assert facts["sink_path"] == f"file://{output}"
        assert facts["sources"] == [f"FileSource[{source}]"]
    comparison = wait_for("the comparison", lambda: expected.check(application, source, output))
    assert comparison.equal, comparison.to_dict()
    assert comparison.expected > 0


@pytest.fixture(scope="module")
def flights() -> list[dict[str, object]]:
    return replay.departures(replay.data_dir())[:900]


# In the storms: `make demo` runs this application whole, through a disaster.
def test_hourly_delays(tmp_path: Path, flights: list[dict[str, object]]) -> None:
    replay.replay(flights, tmp_path / "in", rows_per_file=300, gap_ms=0)
    drained(tmp_path, "hourly_delays", "--trigger", "200 milliseconds")


def test_aircraft_sessions(tmp_path: Path, flights: list[dict[str, object]]) -> None:
    replay.replay(flights[:20], tmp_path / "in", rows_per_file=10, gap_ms=0)
    drained(tmp_path, "aircraft_sessions", "--trigger", "200 milliseconds")


@pytest.mark.parametrize("salts", ["1", "8"])
def test_flight_history(tmp_path: Path, flights: list[dict[str, object]], salts: str) -> None:
    replay.replay(flights[:60], tmp_path / "in", rows_per_file=30, gap_ms=0)
    drained(tmp_path, "flight_history", "--trigger", "200 milliseconds", "--salts", salts)
