"""After a repair of its state a query goes on as if the broken rows had never been broken.

The model is a run of the same query over sound input. The real one reads, up to a savepoint, values of most
keys that are a million too high; what is left of them in the state is repaired, and the rest of the input is
sound again. What both give from there on must be equal.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.rewrite.repair import StateRepair, repair_savepoint
from streambank_spark.rewrite.validate_request import Assignment
from streambank_spark.state.rule import Rule
from streambank_spark.state.staging import Staging
from tests.storm.cells import cells_of
from tests.support.spark.queries import QUERIES, Query, write_input
from tests.support.spark.sessions import prepare, read_batches, run_to_end, run_until, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.storm,
    pytest.mark.timeout(3600),
    # Spark 4.3 warns of every pandas from 3.0 on, whatever is used of it.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

BATCHES = 14
LAST = 7
TOO_MUCH = 1_000_000
SOUND = ("k1", "k2", "k5")
TOTAL = {"apply-in-pandas-with-state": "value.groupState.total"}


@pytest.fixture(autouse=True)
def prepared(spark: SparkSession) -> None:
    prepare(spark)


def spoil_the_past(folder: Path) -> None:
    """Raise the values of most keys in all batches up to `LAST`."""
    for path in sorted(folder.glob("*/*.json")):
        if int(path.stem) > LAST:
            continue
        stat = path.stat()
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            row["value"] += 0 if row["key"] in SOUND else TOO_MUCH
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def given_after(output: Path) -> dict[int, list[Any]]:
    """What each batch after `LAST` gave."""
    return {batch: rows for batch, rows in read_batches(output).items() if batch > LAST}


def model(base: SparkSession, query: Query, layout: str, folder: Path) -> dict[int, list[Any]]:
    write_input(folder / "in", BATCHES)
    place = (folder / "in", folder / "checkpoint", folder / "out")
    run_until(session_for(base, layout), query, *place, LAST)
    run_to_end(session_for(base, layout), query, *place)
    return given_after(folder / "out")


class Spoilt:
    """A run over spoilt input, and a savepoint of it."""

    def __init__(self, base: SparkSession, query: Query, layout: str, folder: Path) -> None:
        self.base, self.query, self.layout, self.folder = base, query, layout, folder
        write_input(folder / "in", BATCHES)
        spoil_the_past(folder / "in")
        run_until(
            session_for(base, layout), query, folder / "in", folder / "checkpoint", folder / "out", LAST
        )
        self.repository = Repository.open(open_store(str(folder / "repository")), create=True)
        self.savepoint = take(
            TakeRequest(open_store(str(folder / "checkpoint")), self.repository, "job")
        ).savepoint

    def repair(self) -> StateRepair:
        total = TOTAL.get(self.query.name, "value.sum")
        staging = Staging("local[2]", str(self.folder / "work"), print)
        return repair_savepoint(
            SourceSavepoint(self.base, self.repository, "job", self.savepoint, staging),
            [Rule(f"{total} < {TOO_MUCH}")],
            [Assignment.parse(f"{total} = {total} % {TOO_MUCH}")],
            limit=1,
        )

    def go_on(self, savepoint: str) -> dict[int, list[Any]]:
        """Restore a savepoint, let the query read the rest of its input, and give what came of that."""
        place = self.folder / savepoint
        into = open_store(str(place / "checkpoint"))
        restore(RestoreRequest(self.repository, savepoint, job="job", into=into, sink="accept"))
        session = session_for(self.base, self.layout)
        run_to_end(session, self.query, self.folder / "in", place / "checkpoint", place / "out")
        return given_after(place / "out")


@pytest.mark.parametrize(("name", "layout"), cells_of("repair"))
def test_a_query_goes_on_from_repaired_state_as_if_it_had_been_sound(
    spark: SparkSession, name: str, layout: str, tmp_path: Path
) -> None:
    expected = model(spark, QUERIES[name], layout, tmp_path / "model")
    spoilt = Spoilt(spark, QUERIES[name], layout, tmp_path / "real")
    repaired = spoilt.repair()
    assert repaired.derived.savepoint is not None and repaired.repairs[0].rows > 0
    assert spoilt.go_on(repaired.derived.savepoint) == expected
    assert spoilt.go_on(spoilt.savepoint) != expected, "control: what was broken shows"
