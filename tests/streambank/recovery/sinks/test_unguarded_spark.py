"""What foreachBatch does with batches that it was sent before, in Spark: the dangers that a restore names."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.core.errors import RefusedError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.unguarded import sinks_from_descriptions
from streambank.storage import open_store
from streambank_spark.private.jvm import sink_of
from tests.support.jobs.simulated_job import JOB
from tests.support.refuses import refuses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class LedgerQuery:
    """A query of one row a file into two tables: `plain` appends, `once` remembers batch ids in `ledger`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.input, self.database = spark, folder / "in", folder / "sink.db"
        self.input.mkdir()
        self.files = 0
        self.sink = ""
        with closing(sqlite3.connect(self.database)) as sink:
            for table in ("plain (file)", "once (file, batch_id)", "ledger (batch_id PRIMARY KEY)"):
                sink.execute(f"CREATE TABLE {table}")
            sink.commit()

    def add(self, files: int) -> None:
        for _ in range(files):
            (self.input / f"{self.files:04d}.json").write_text(json.dumps({"file": self.files}))
            self.files += 1

    def run(self, checkpoint: Path, files_per_batch: int) -> None:
        stream = self.spark.readStream.schema("file INT").option("maxFilesPerTrigger", files_per_batch)
        writer = stream.json(str(self.input)).writeStream.foreachBatch(self.write)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        self.sink = sink_of(query)[0]
        query.awaitTermination()

    def write(self, frame: DataFrame, batch: int) -> None:
        files = [row["file"] for row in frame.collect()]
        with closing(sqlite3.connect(self.database)) as sink:
            sink.executemany("INSERT INTO plain VALUES (?)", [(file,) for file in files])
            if sink.execute("SELECT 1 FROM ledger WHERE batch_id = ?", (batch,)).fetchone() is None:
                sink.executemany("INSERT INTO once VALUES (?, ?)", [(file, batch) for file in files])
                sink.execute("INSERT INTO ledger VALUES (?)", (batch,))
            sink.commit()

    def roll_back(self, batch: int) -> None:
        """As docs/howto/sinks.md says."""
        with closing(sqlite3.connect(self.database)) as sink:
            for table in ("once", "ledger"):
                sink.execute(f"DELETE FROM {table} WHERE batch_id > ?", (batch,))
            sink.commit()

    def rows(self, table: str) -> Counter[int]:
        with closing(sqlite3.connect(self.database)) as sink:
            return Counter(file for (file,) in sink.execute(f"SELECT file FROM {table}"))


@pytest.mark.storm
def test_what_is_named_is_what_happens(spark: SparkSession, tmp_path: Path) -> None:
    query = LedgerQuery(spark, tmp_path)
    query.add(3)
    query.run(tmp_path / "ck", 1)
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    taken = take(
        TakeRequest(open_store(tmp_path / "ck"), repository, JOB, sinks=sinks_from_descriptions([query.sink]))
    )
    query.add(4)
    query.run(tmp_path / "ck", 1)  # batches 3 to 6
    with refuses(RefusedError, "sink-not-guarded", match="sent batches 3 to 6 after the savepoint's batch 2"):
        restore(RestoreRequest(repository, taken.savepoint, into=open_store(tmp_path / "restored")))
    report = restore(
        RestoreRequest(repository, taken.savepoint, into=open_store(tmp_path / "restored"), sink="accept")
    )
    assert "repeated" in report.sink_effect and "skipped for good" in report.sink_effect

    query.add(2)
    query.run(tmp_path / "restored", 3)  # batches 3 and 4: six files, two of them new
    assert query.rows("plain") == Counter({**dict.fromkeys(range(9), 1), **dict.fromkeys(range(3, 7), 2)})
    assert sorted(query.rows("once").elements()) == list(range(7)), "the two new files are lost for good"

    query.roll_back(2)
    restore(RestoreRequest(repository, taken.savepoint, into=open_store(tmp_path / "again"), sink="accept"))
    query.run(tmp_path / "again", 3)
    assert sorted(query.rows("once").elements()) == list(range(9)), "as docs/howto/sinks.md says"
