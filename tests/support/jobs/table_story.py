"""The main story of a job that writes to a table by the connector of its format, on the Spark of that.

What a table holds is read by the connector itself, in a Spark beside the job's.
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

from demo.jars import JarSet, delta, iceberg
from tests.support.jobs.release_story import KEYS, NAME, ReleaseStory
from tests.support.spark.releases import OtherSpark, other_spark
from tests.support.waiting import wait_for

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
