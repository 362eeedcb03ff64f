"""The example job that writes departures to a Delta table goes through a disaster."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_jobs.flights.replay import data_dir, departures, replay
from streambank.core.errors import RefusedError
from streambank.declaration.load import load_jobs
from tests.support.cli import streambank, succeed
from tests.support.jobs.declared import end_drivers
from tests.support.paths import ROOT
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.storm, pytest.mark.timeout(900)]

NAME = "flights_to_delta"
JOBS = ROOT / "examples" / "flights_to_delta.toml"
FILES, ROWS = 6, 500


class Flights:
    """The job, with departures that arrive file by file.

    Args:
        home: Where all of it is.
    """

    def __init__(self, home: Path) -> None:
        self.home, self.input = home, home / "input"
        self.input.mkdir()
        replay(
            departures(data_dir())[: FILES * ROWS],
            home / "ready",
            rows_per_file=ROWS,
            gap_ms=0,
            closing=False,
        )
        self.arrived: Counter[str] = Counter()

    def arrive(self) -> None:
        """Let the next file arrive."""
        file = min((self.home / "ready").glob("flights-*.json"))
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        self.arrived += Counter(key(line) for line in lines)
        file.rename(self.input / file.name)

    def rows(self) -> Counter[str]:
        """How often each departure is in the table."""
        return Counter(
            key(row) for row in DeltaTable(str(self.home / "table")).to_pyarrow_table().to_pylist()
        )

    def job(self, verb: str, *options: str) -> Any:
        """What a verb of the job says."""
        return succeed("job", verb, NAME, "--jobs", JOBS, *options, "--json").document

    def until_batch(self, batch: int) -> None:
        """Wait until a batch is committed."""

        def committed() -> bool:
            newest = self.job("status")["queries"]["main"]["batch"]
            return newest is not None and newest >= batch

        wait_for(f"batch {batch}", committed)


def key(row: Mapping[str, Any]) -> str:
    """A departure."""
    when = row["event_time"]
    at = when if isinstance(when, datetime) else datetime.fromisoformat(when)
    return f"{at.astimezone(UTC)} {row['origin']} {row['carrier']} {row['flight']} {row['dep_delay_min']}"


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flights]:
    monkeypatch.setenv("FLIGHTS_HOME", str(tmp_path))
    yield Flights(tmp_path)
    end_drivers(load_jobs(JOBS).job(NAME).records())


def test_each_departure_is_in_the_table_once(flights: Flights) -> None:
    """Saved at batch 1, three batches on, kill -9, restored, and further departures."""
    flights.arrive()
    flights.job("start")
    flights.until_batch(0)
    flights.arrive()
    flights.until_batch(1)
    taken = flights.job("savepoint")
    for batch in (2, 3, 4):
        flights.arrive()
        flights.until_batch(batch)
    status = flights.job("status")
    for role in ("jvm_pid", "pid"):
        os.kill(status[role], signal.SIGKILL)
    wait_for("the end of the driver", lambda: flights.job("status")["state"] != "running")
    assert flights.rows() == flights.arrived

    restore = (
        "restore",
        taken["savepoint"],
        "-r",
        flights.home / "savepoints",
        "--jobs",
        JOBS,
        "--job",
        NAME,
    )
    refused = streambank(*restore, "--generation")
    assert refused.code == RefusedError.exit_code
    assert f"batches 2 to 4 ({3 * ROWS} rows)" in refused.err and "--sink rollback" in refused.err
    done = succeed(*restore, "--generation", "--sink", "rollback", "--json").document
    assert done["rolled_back"][0]["rows_removed"] == 3 * ROWS
    assert flights.rows().total() == 2 * ROWS

    flights.arrive()  # the query takes it together with the files of the batches that were rolled back
    flights.job("start")
    flights.until_batch(2)
    flights.job("stop")
    assert flights.rows() == flights.arrived
    assert flights.arrived.total() == FILES * ROWS
