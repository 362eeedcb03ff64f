"""What only Spark can show: the file sink after a restore, and that a half-done target starts no query."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streambank.core.choices import SinkChoice
from streambank.doctor.checks.checkpoint import check_sink
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store
from streambank.work.executor import Pace
from tests.support.jobs.simulated_job import JOB, quick_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class FileQuery:
    """A stateless query from JSON files to a Parquet file sink, compacting its log every 5 batches."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.input = folder / "in"
        self.output = folder / "out"
        self.input.mkdir(parents=True)
        self.files = 0

    def add(self, files: int) -> None:
        for _ in range(files):
            rows = "\n".join(json.dumps({"file": self.files, "row": row}) for row in range(10))
            (self.input / f"{self.files:04d}.json").write_text(rows)
            self.files += 1

    def run(self, checkpoint: Path, files_per_batch: int = 1) -> None:
        self.spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "5")
        stream = (
            self.spark.readStream.schema("file INT, row INT")
            .option("maxFilesPerTrigger", str(files_per_batch))
            .json(str(self.input))
        )
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(self.output))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def rows(self) -> list[tuple[int, int]]:
        frame = self.spark.read.schema("file INT, row INT").parquet(str(self.output))
        return sorted((row["file"], row["row"]) for row in frame.collect())

    def all_rows(self, first_file: int = 0) -> list[tuple[int, int]]:
        return [(file, row) for file in range(first_file, self.files) for row in range(10)]


@pytest.mark.parametrize("choice", ["rollback", pytest.param("accept", marks=pytest.mark.storm)])
def test_file_sink_rows_are_there_exactly_once_after_a_rollback(
    spark: SparkSession, tmp_path: Path, choice: SinkChoice
) -> None:
    """With `accept` the same restore loses rows: so the rollback is what saves them."""
    query = FileQuery(spark, tmp_path)
    query.add(3)
    query.run(tmp_path / "ck")
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    sink = FileSinkCapture(str(query.output))
    taken = take(TakeRequest(open_store(tmp_path / "ck"), repository, JOB, sinks=[sink]))
    query.add(9)  # over two compactions
    query.run(tmp_path / "ck")
    assert query.rows() == query.all_rows()
    report = restore(
        RestoreRequest(repository, taken.savepoint, into=open_store(tmp_path / "restored"), sink=choice)
    )
    assert report.plan.sinks[0]["later_rows"] == 90
    query.add(2)
    query.run(tmp_path / "restored", files_per_batch=4)
    if choice == "accept":
        assert len(query.rows()) < len(query.all_rows())
        return
    assert query.rows() == query.all_rows()
    query.add(8)
    query.run(tmp_path / "restored")  # over the next compaction
    assert query.rows() == query.all_rows()


@pytest.mark.parametrize(
    ("batches", "case"),
    [
        pytest.param(2, "fork", marks=pytest.mark.storm),
        pytest.param(7, "fork", marks=pytest.mark.storm),
        (7, "emptied"),
    ],
)
@pytest.mark.storm
def test_a_new_output_is_written_and_read_over_compactions(
    spark: SparkSession, tmp_path: Path, batches: int, case: str
) -> None:
    """Saved before the log was first compacted, and after."""
    query = FileQuery(spark, tmp_path)
    query.add(batches)
    query.run(tmp_path / "ck")
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    sink = FileSinkCapture(str(query.output))
    taken = take(TakeRequest(open_store(tmp_path / "ck"), repository, JOB, sinks=[sink]))
    target = open_store(tmp_path / "restored")
    if case == "fork":
        new = tmp_path / "fork=1" / "out"
        restore(
            RestoreRequest(
                repository, taken.savepoint, into=target, mode="fork", new_sinks={str(query.output): str(new)}
            )
        )
        query.output = new
    else:
        shutil.rmtree(query.output)
        restore(RestoreRequest(repository, taken.savepoint, into=target, sink="accept"))
    assert query.rows() == []
    query.add(1)
    query.run(tmp_path / "restored")
    assert query.rows() == query.all_rows(batches)
    query.add(9)  # over the next compaction and the one after it
    query.run(tmp_path / "restored")
    assert query.rows() == query.all_rows(batches)


def test_without_such_a_log_a_new_output_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """What the log of a new output is for, and the warning of a restore that does not write it."""
    query = FileQuery(spark, tmp_path)
    query.add(2)
    query.run(tmp_path / "ck")
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    sink = FileSinkCapture(str(query.output))
    taken = take(TakeRequest(open_store(tmp_path / "ck"), repository, JOB, sinks=[sink]))
    report = restore(
        RestoreRequest(
            repository, taken.savepoint, into=open_store(tmp_path / "restored"), mode="fork", sink="accept"
        )
    )
    assert "BATCH_METADATA_NOT_FOUND" in report.warnings[-1]
    assert f"--new-sink file://{query.output}=DIR" in report.warnings[-1]
    query.output = tmp_path / "fork"
    query.add(5)
    with pytest.raises(Exception, match="BATCH_METADATA_NOT_FOUND"):
        query.run(tmp_path / "restored")
    found = check_sink("fork", open_store(query.output), open_store(tmp_path / "restored"))
    assert "sink-log-gap" in [finding.code for finding in found]


def test_a_half_done_target_starts_no_query(spark: SparkSession, tmp_path: Path) -> None:
    query = FileQuery(spark, tmp_path)
    query.add(2)
    query.run(tmp_path / "ck")
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    taken = take(TakeRequest(open_store(tmp_path / "ck"), repository, JOB))
    target = quick_store(tmp_path / "restored")
    refused: list[str] = []

    def start(step: object) -> None:
        if not refused:
            try:
                query.run(tmp_path / "restored")
            except Exception as error:  # py4j's, or Spark's own: what matters is that it says no
                refused.append(str(error))

    restore(RestoreRequest(repository, taken.savepoint, into=target), pace=Pace(progress=start, parallel=1))
    assert "id" in refused[0]
    query.add(1)
    query.run(tmp_path / "restored")
