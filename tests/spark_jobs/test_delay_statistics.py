"""State that changes with its application: a column is added, then its meaning changes; nothing is lost."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.flights import delay_statistics as app
from streambank.checkpoint.schema.compatibility import compare_schemas
from streambank.repository.repository import Repository
from streambank.savepoint.schema import schema_of_checkpoint, schema_of_savepoint
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.state.read import RowChoice, export_state
from streambank_spark.state.staging import Staging, materialized_savepoint
from streambank_spark.state.state import QueryState
from tests.support.spark.sessions import finish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# In the storms: each run of a transformWithState waits for its Python workers.
pytestmark = [pytest.mark.spark, pytest.mark.storm]

AIRPORTS = ("EWR", "JFK", "LGA", "SWF")
PER_FILE = 8


def write_flights(folder: Path, number: int) -> str:
    """One file of departures, of one more airport than in the file before; its name."""
    folder.mkdir(exist_ok=True)
    rows = [
        {
            "event_time": f"2013-01-01T{number:02}:{n:02}:00Z",
            "origin": AIRPORTS[n % min(number + 2, len(AIRPORTS))],
            "flight": n,
            "dep_delay_min": (number + 1) * n - 5 if n != 3 else None,
        }
        for n in range(PER_FILE)
    ]
    path = folder / f"flights-{number:06}.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.name


def known(folder: Path, names: list[str]) -> tuple[Counter[str], Counter[str]]:
    """Departures and minutes of delay of each airport in some files, computed here."""
    departures: Counter[str] = Counter()
    delay_min: Counter[str] = Counter()
    for name in names:
        for line in (folder / name).read_text().splitlines():
            row = json.loads(line)
            departures[row["origin"]] += 1
            delay_min[row["origin"]] += row["dep_delay_min"] or 0
    return departures, delay_min


class Bench:
    """Runs of the application, in one session after the other."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(app)  # type: ignore[no-untyped-call]  # vendored, untyped
        self.spark, self.input = spark, folder / "in"

    def run(self, checkpoint: Path, version: int, after: str = "", export: Path | None = None) -> list[Any]:
        """Run until all input is read; the last row of each airport, sorted."""
        session = self.spark.newSession()
        for name, value in {**app.CONF, "spark.sql.shuffle.partitions": "2"}.items():
            session.conf.set(name, value)
        given: dict[str, Any] = {}

        def keep(rows: DataFrame, batch: int) -> None:
            given.update({row.airport: row.asDict() for row in rows.collect()})

        def begin() -> Any:
            flights = session.readStream.schema(app.FLIGHTS).option("maxFilesPerTrigger", 1)
            stream = flights.json(str(self.input))
            initial = None if export is None else app.exported(session, str(export))
            made = app.statistics(app.unread(stream, after) if after else stream, version, initial)
            writer = made.writeStream.outputMode("update").trigger(availableNow=True).foreachBatch(keep)
            return writer.option("checkpointLocation", str(checkpoint)).start()

        finish(begin)
        return [given[airport] for airport in sorted(given)]

    def state(self, checkpoint: Path) -> dict[str, Any]:
        state = QueryState(self.spark, str(checkpoint))
        (operator,) = state.operators()
        (part,) = state.parts(operator, app.STATISTICS)
        return {row.key.airport: row.value.asDict() for row in state.frame(part).collect()}


def test_from_version_to_version_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, tmp_path)
    one, three = tmp_path / "checkpoint", tmp_path / "checkpoint-3"
    files = [write_flights(bench.input, 0)]
    first = bench.run(one, 1)
    departures, _ = known(bench.input, files)
    assert {row["airport"]: row["departures"] for row in first} == departures

    # What version 2 keeps is known from a run of it on anything: Spark would take the one for the other.
    tried = tmp_path / "tried"
    bench.run(tried, 2)
    stored = schema_of_checkpoint(open_store(one))[1]
    found = compare_schemas(stored, schema_of_checkpoint(open_store(tried))[1])
    assert (found.verdict, found.loses) == ("compatible", False)
    assert [one.column for one in found.differences] == ["value.delay_min"]

    files.append(write_flights(bench.input, 1))
    bench.run(one, 2)
    departures, _ = known(bench.input, files)
    _, delay_min = known(bench.input, files[1:])
    expected = {a: {"departures": n, "delay_min": delay_min[a]} for a, n in departures.items()}
    assert bench.state(one) == expected, "the delays of version 1 are not known"

    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    savepoint = take(TakeRequest(open_store(one), repository, "statistics")).savepoint
    with materialized_savepoint(
        repository, "statistics", savepoint, Staging("local[2]", None, print)
    ) as laid:
        export_state(spark, QueryState(spark, laid.location), str(tmp_path / "export"), RowChoice(None, None))

    files.append(write_flights(bench.input, 2))
    last = bench.run(three, 3, files[1], tmp_path / "export")
    departures, _ = known(bench.input, files)
    _, delay_min = known(bench.input, files[1:])
    expected_means = {a: 60.0 * delay_min[a] / n for a, n in departures.items()}
    kept = bench.state(three)
    assert {a: row["departures"] for a, row in kept.items()} == departures
    assert {a: row["mean_delay_s"] for a, row in kept.items()} == pytest.approx(expected_means)
    assert {row["airport"]: row["mean_delay_s"] for row in last} == {
        row["airport"]: kept[row["airport"]]["mean_delay_s"] for row in last
    }, "what was given out last is what is kept"

    changed = schema_of_checkpoint(open_store(three))[1]
    told = compare_schemas(schema_of_savepoint(repository, "statistics", savepoint)[1], changed)
    lost = [one for one in told.differences if one.column == "value.delay_min"]
    assert (told.verdict, told.loses) == ("compatible", True), "Avro reads it, and the sum would be gone"
    assert "gone" in lost[0].why
