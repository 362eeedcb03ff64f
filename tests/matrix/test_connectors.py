"""Jobs that write to Delta and Iceberg tables by the connectors of these formats, on the Spark of each.

Spark names a Delta table itself; an Iceberg table is declared with its catalog.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo.jars import JarSet, delta, iceberg
from streambank.declaration.load import load_jobs
from tests.support.cli import streambank
from tests.support.jobs.declared import end_drivers
from tests.support.jobs.drill_story import drill
from tests.support.jobs.release_story import KEYS, NAME, ReleaseStory
from tests.support.spark.releases import OtherSpark, other_spark
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.matrix, pytest.mark.timeout(1800)]

# The main story of a job that writes to a table by the connector of its format, on the Spark of that.
#
# What a table holds is read by the connector itself, in a Spark beside the job's.

APPLICATION = '''
import sys, time
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

source, table, slow, files = sys.argv[1:5]

def nap(n):
    """A batch takes as long as the file says, which may change while it runs."""
    with open(slow) as file:
        time.sleep(float(file.read() or 0))
    return n

with open(files) as file:
    most = file.read()
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("k string, n int").option("maxFilesPerTrigger", most).json(source)
rows = rows.coalesce(1).withColumn("n", udf(nap, "int")("n")).dropDuplicates(["k"])
writer = rows.writeStream.outputMode("append").trigger(processingTime="200 milliseconds")
START.awaitTermination()
'''
READER = """
import json, sys
from pyspark.sql import SparkSession

conf = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[1]")
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
for line in sys.stdin:
    rows = [row.asDict() for row in spark.sql(json.loads(line)).collect()]
    print("answer:" + json.dumps(rows, default=str), flush=True)
"""
"""Answers statements of SQL, one a line."""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A table format, with its connector.

    Attributes:
        release: The release of Spark that its connector is made for.
        start: How an application starts its query, in Python.
        sink: How messages name the table, in part.
    """

    name: str
    release: str
    jars: JarSet
    start: str
    sink: str
    create: tuple[str, ...]

    def conf(self, folder: Path) -> dict[str, str]:
        """Settings of each Spark that uses the table."""
        jars = ",".join(str(path) for path in sorted(self.jars.jars().glob("*.jar")))
        own = {"spark.jars": jars, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        if self.name == "delta":
            return own | {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.databricks.delta.snapshotPartitions": "2",
            }
        catalog = "spark.sql.catalog.lake"
        return own | {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "jdbc",
            f"{catalog}.cache-enabled": "false",  # the reader sees what the job writes
            f"{catalog}.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": f"file://{folder / 'lake'}",
        }

    def declared(self, folder: Path) -> str:
        """What the job declares of its sinks; nothing where Spark names the table itself."""
        if self.name == "delta":
            return ""
        catalog = f'{{name = "lake", type = "sql", uri = "sqlite:///{folder / "catalog.db"}"}}'
        return f'[[jobs.{NAME}.sinks]]\nkind = "iceberg"\ntable = "db.orders"\ncatalog = {catalog}\n'

    def table(self, folder: Path) -> str:
        return f"delta.`{folder / 'lake'}`" if self.name == "delta" else "lake.db.orders"


DELTA = TableFormat(
    "delta",
    delta.SPARK,
    delta.DELTA,
    'writer.format("delta").start(table)',
    sink="Delta table",
    create=("CREATE TABLE {} (k STRING, n INT) USING delta",),
)
ICEBERG = TableFormat(
    "iceberg",
    iceberg.SPARK,
    iceberg.ICEBERG,
    "writer.toTable(table)",
    sink="Iceberg table db.orders",
    create=("CREATE NAMESPACE lake.db", "CREATE TABLE {} (k STRING, n INT) USING iceberg"),
)


class TableReader:
    """A Spark with the connector, which answers SQL."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """The rows that a statement gives."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(statement), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("answer:"):
                found: list[dict[str, Any]] = json.loads(line.removeprefix("answer:"))
                return found
        raise AssertionError(f"the reader failed at: {statement}")


@contextmanager
def table_reader(spark: OtherSpark, conf: Mapping[str, str]) -> Iterator[TableReader]:
    """Start a Spark beside that of the job; it ends with the block."""
    command = [str(spark.python), "-W", "ignore", "-c", READER, json.dumps(conf)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield TableReader(process)
        finally:
            process.kill()


class TableStory(ReleaseStory):
    """A job that writes to a table, and what a person does with it."""

    def __init__(self, folder: Path, kind: TableFormat, spark: OtherSpark, reader: TableReader) -> None:
        self.kind, self.reader, self.table = kind, reader, kind.table(folder)
        self.most = folder / "files-per-batch"
        super().__init__(
            folder,
            f'python = "{spark.python}"\n{kind.declared(folder)}',
            application=APPLICATION.replace("START", kind.start),
            output=self.table if kind.name == "iceberg" else str(folder / "lake"),
            more_arguments=[str(self.most)],
            settings=kind.conf(folder),
        )
        self.files_per_batch(1)
        for statement in kind.create:
            reader.sql(statement.format(self.table))

    def files_per_batch(self, most: int) -> None:
        """How many files the next driver's query takes in a batch."""
        self.most.write_text(str(most), encoding="utf-8")

    def rows(self) -> Counter[str]:
        return Counter(str(row["k"]) for row in self.reader.sql(f"SELECT k FROM {self.table}"))

    def expected(self) -> Counter[str]:
        """What a batch computation of the same input gives."""
        rows = self.reader.sql(f"SELECT DISTINCT k FROM json.`{self.source}`")
        return Counter(str(row["k"]) for row in rows)

    def until_written(self) -> None:
        """Wait until all that has arrived is in the table, and no batch is under way any more."""
        arrived = super().expected().keys()

        def idle() -> bool:
            query = self.document("status")["queries"]["main"]
            return bool(query["planned_batch"] == query["batch"])

        # A batch under way may have written its rows between the first question and the second.
        wait_for("all rows in the table", lambda: idle() and self.rows().keys() >= arrived and idle())

    def compact(self) -> None:
        """Write the table's rows into as few files as they need."""
        if self.kind.name == "delta":
            self.reader.sql(f"OPTIMIZE {self.table}")
        else:
            options = "map('rewrite-all', 'true')"
            self.reader.sql(
                f"CALL lake.system.rewrite_data_files(table => 'db.orders', options => {options})"
            )

    def keys_of_last(self, files: int) -> list[str]:
        """The keys that only the newest files have brought."""
        return [f"k{n}" for n in range((self.files - files + 1) * KEYS, (self.files + 1) * KEYS)]

    def coming(self) -> Counter[str]:
        """The keys that only the next file will bring."""
        first = (self.files + 1) * KEYS
        return Counter(f"k{n}" for n in range(first, first + KEYS))


@contextmanager
def table_story(folder: Path, kind: TableFormat) -> Iterator[TableStory]:
    spark = other_spark(kind.release)
    with table_reader(spark, kind.conf(folder)) as reader:
        yield TableStory(folder, kind, spark, reader)


FORMATS = {one.name: one for one in (DELTA, ICEBERG)}


@pytest.fixture
def story(tmp_path: Path, kind: str) -> Iterator[TableStory]:
    with table_story(tmp_path, FORMATS[kind]) as found:
        try:
            yield found
        finally:
            end_drivers(load_jobs(found.jobs).job(NAME).records())


def saved_in_a_batch(story: TableStory) -> dict[str, Any]:
    """A savepoint that is taken while a batch runs."""
    story.feed()
    story.until_busy()
    taken: dict[str, Any] = story.document("savepoint")
    return taken


def three_batches_later(story: TableStory) -> tuple[str, int]:
    """A savepoint and its batch, and a driver whose query went on for three batches since, and is idle."""
    story.feed(2)
    story.do("start")
    story.until_written()
    story.nap(0.05)
    taken = saved_in_a_batch(story)
    assert not taken["warnings"], "the table is guarded"
    savepoint, batch = taken["savepoint"], int(taken["batch"])
    story.nap(0)
    story.until_batch(batch + 1)
    for number in (batch + 2, batch + 3):
        story.feed()
        story.until_batch(number)
    return savepoint, batch


def new_rows(story: TableStory, batch: int) -> None:
    """Start the job, whose first batch takes all that is there, and let rows arrive in three more batches."""
    story.files_per_batch(10)
    story.do("start")
    for number in range(batch + 1, batch + 4):
        story.until_batch(number)
        story.feed()
    story.until_written()
    story.do("stop")


@pytest.mark.parametrize("kind", FORMATS)
def test_the_story_of_a_table(story: TableStory) -> None:
    """Savepoints in batches, kill -9, restores, boundary stop: each row once."""
    story.feed(2)
    story.do("start")
    story.until_written()
    story.nap(0.05)
    assert not any(saved_in_a_batch(story)["warnings"] for _ in range(3)), "the table is guarded"
    story.until_written()
    story.nap(0.2)
    story.feed(3)
    story.until_busy()
    story.kill()
    dead = story.document("savepoint")
    # The rows of the batch that was under way may be in the table, and may not.
    assert story.restore(dead["savepoint"], "--sink", "rollback")["generation"] == 2
    story.nap(0)
    story.do("start")
    story.until_written()
    story.nap(0.1)
    story.feed()
    story.until_busy()
    assert story.document("stop")["how"] == "boundary", "a batch of two seconds was let finish"
    assert story.rows() == story.expected()

    story.document("savepoint")
    assert story.restore("latest")["generation"] == 3, "nothing was written after it"
    story.nap(0)
    story.feed(2)
    story.do("start")
    story.until_written()
    story.do("stop", "--drain")
    assert story.rows() == story.expected()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_is_rolled_back_has_each_row_once(story: TableStory) -> None:
    """Three batches after the savepoint, kill -9, a compaction, and a restore that goes on with new rows."""
    savepoint, batch = three_batches_later(story)
    story.kill()
    before = story.rows()
    assert before == story.expected()
    story.compact()
    said = story.refused(savepoint)
    assert story.kind.sink in said and f"batches {batch + 1} to {batch + 3}" in said
    assert "skipped for good" in said and "--sink rollback" in said
    assert story.rows() == before, "a refusal changes nothing"
    assert story.restore(savepoint, "--sink", "rollback")["generation"] == 2
    assert story.rows() == before - Counter(dict.fromkeys(story.keys_of_last(3), 1))
    new_rows(story, batch)
    assert story.rows() == story.expected()


@pytest.mark.parametrize("kind", ["iceberg"])
def test_what_is_said_of_the_loss_is_what_happens(story: TableStory) -> None:
    """To the row, where a restore is accepted: the batches that the table takes for done are skipped."""
    savepoint, batch = three_batches_later(story)
    story.do("stop")
    assert story.restore(savepoint, "--sink", "accept")["generation"] == 2
    story.files_per_batch(10)  # the first batch takes all that was there: its rows are in the table already
    story.do("start")
    lost = Counter[str]()
    for number in (batch + 1, batch + 2):
        story.until_batch(number)
        lost += story.coming()
        story.feed()
    story.until_batch(batch + 3)
    story.feed()
    story.until_batch(batch + 4)
    story.do("stop")
    assert story.rows() == story.expected() - lost
    assert lost.total() == 2 * KEYS


@pytest.mark.parametrize("kind", ["delta"])
def test_a_loss_that_state_does_not_survive_cannot_be_accepted(story: TableStory) -> None:
    """Delta's sink does not compute what it skips, so the query would fail on state that was not written."""
    savepoint, _ = three_batches_later(story)
    story.do("stop")
    before = story.rows()
    said = story.refused(savepoint, "--sink", "accept")
    assert "CANNOT_LOAD_STATE_STORE" in said and "--sink rollback" in said
    assert story.rows() == before == story.expected()


@pytest.mark.parametrize("kind", ["iceberg"])
def test_a_table_that_was_rolled_back_by_hand_has_each_row_once(story: TableStory) -> None:
    """Back to the snapshot of the savepoint's batch by Iceberg's own procedure: nothing is left to decide."""
    savepoint, batch = three_batches_later(story)
    story.do("stop")
    (snapshot,) = story.reader.sql(
        f"SELECT snapshot_id FROM {story.table}.snapshots "
        f"WHERE summary['spark.sql.streaming.epochId'] = '{batch}'"
    )
    story.reader.sql(f"CALL lake.system.rollback_to_snapshot('db.orders', {snapshot['snapshot_id']})")
    story.restore(savepoint)
    new_rows(story, batch)
    assert story.rows() == story.expected()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_drill_and_a_copy_write_beside_the_table(story: TableStory) -> None:
    """Both process batches of the live query again; the copy goes on with rows that arrive, each once.

    A Delta table at a path stays one on the copy; what goes to a table by its name becomes Parquet.
    """
    story.feed(2)
    story.do("start")
    story.until_written()
    savepoint = story.document("savepoint")
    assert not savepoint["warnings"], "the table is guarded"
    story.feed(3)
    story.until_written()

    report = drill(story)
    (query,) = report["queries"]
    assert (report["passed"], len(query["batches"])) == (True, 3), report
    assert query["state_equal"] is True
    assert story.rows() == story.expected(), "a drill writes nothing into the table"

    live = str(story.folder / "lake") if story.kind is DELTA else story.table
    staging = story.folder / "staging"
    with story.jobs.open("a", encoding="utf-8") as file:
        file.write(
            f'[jobs.{NAME}.copies.staging]\ncheckpoint = "staging-checkpoint"\n'
            f'outputs = {{ "{live}" = "{staging}" }}\n'
        )
    copy = f"{NAME}@staging"
    made = streambank("fork", NAME, "staging", "--jobs", story.jobs, "--json")
    assert made.code == 0, made
    (place,) = made.document["queries"][0]["outputs"].values()
    kept = f"delta.`{place}`" if story.kind is DELTA else f"parquet.`{place}/batch=*`"
    try:
        assert streambank("job", "start", copy, "--jobs", story.jobs).code == 0
        story.feed()
        story.until_written()
        after = Counter(story.keys_of_last(4))

        def written() -> Counter[str]:
            return Counter(str(row["k"]) for row in story.reader.sql(f"SELECT k FROM {kept}"))

        wait_for("all rows since the savepoint on the copy", lambda: written().keys() >= after.keys())
        assert written() == after, "each row since the savepoint once"
    finally:
        streambank("job", "stop", copy, "--jobs", story.jobs)
    assert story.rows() == story.expected(), "the copy writes nothing into the table"
    story.feed()
    story.until_written()
    story.do("stop", "--drain")
    assert story.rows() == story.expected()
