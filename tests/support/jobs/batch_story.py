"""The main story of a job that writes by `foreachBatch`: a Delta table by delta-rs, a database, or both.

Rows arrive as in `release_story.py`, and how many files a batch takes may change between two runs: a query
that goes back has other rows in the batches of the same numbers.
"""

from __future__ import annotations

import os
import runpy
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deltalake import DeltaTable
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from tests.support.jobs.release_story import KEYS, NAME, ReleaseStory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Output = Literal["delta", "ledger", "append", "idempotent-by-key"]
URL = "ORDERS_URL"
"""The variable that names the database."""

APPLICATION = '''
import os, sys, time
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from streambank_spark.delta import write_delta_once
from streambank_spark.ledger import Ledger

def frame(spark, source, most):
    rows = spark.readStream.schema("k string, n int").option("maxFilesPerTrigger", most).json(source)
    return rows.coalesce(1).dropDuplicates(["k"])

def functions(folder, kinds):
    """What writes a batch to each output."""
    def delta(batch, batch_id):
        write_delta_once(batch, batch_id, folder + "/lake")

    def append(batch, batch_id):
        with open(folder + "/rows", "a") as file:
            file.writelines(f"{row.k}\\n" for row in batch.collect())

    def by_key(batch, batch_id):
        for row in batch.collect():
            os.makedirs(f"{folder}/keys/{row.k}", exist_ok=True)

    found = {"delta": delta, "append": append, "idempotent-by-key": by_key}
    if "ledger" in kinds:
        found["ledger"] = Ledger(os.environ["ORDERS_URL"]).once(lambda batch: batch.insert("orders"))
    return [found[kind] for kind in kinds]

def writer(spark, source, folder, most, kinds):
    writes = functions(folder, kinds)

    def write(batch, batch_id):
        batch.persist()  # computed once for all of them
        for one in writes:
            one(batch, batch_id)
        batch.unpersist()

    return frame(spark, source, most).writeStream.foreachBatch(write)

if __name__ == "__main__":
    source, folder, _, most, *kinds = sys.argv[1:]
    with open(most) as file:
        most = file.read()
    begun = writer(SparkSession.builder.getOrCreate(), source, folder, most, kinds)
    begun.trigger(processingTime="200 milliseconds").start().awaitTermination()
'''


class BatchStory(ReleaseStory):
    """The job, and what a person does with it."""

    def __init__(self, folder: Path, *outputs: Output) -> None:
        self.outputs: Sequence[Output] = outputs
        self.most = folder / "files-per-batch"
        super().__init__(
            folder,
            f'env = ["{URL}"]\n' + "".join(self._declared(folder, kind) for kind in outputs),
            application=APPLICATION,
            output=str(folder),
            more_arguments=[str(self.most), *outputs],
        )
        self.files_per_batch(1)
        if "ledger" in outputs:
            with self._database() as connection:
                connection.execute(text("DROP TABLE IF EXISTS streambank_batches"))
                connection.execute(text("DROP TABLE IF EXISTS orders"))
                columns = "k VARCHAR(64), n INT, query_id VARCHAR(64), batch_id BIGINT"
                connection.execute(text(f"CREATE TABLE orders ({columns})"))

    def _declared(self, folder: Path, kind: Output) -> str:
        fields = {
            "delta": f'table = "{folder / "lake"}"\n',
            "ledger": f'url = "${{{URL}}}"\nrows = ["orders"]\n',
        }
        return f'[[jobs.{NAME}.sinks]]\nkind = "{kind}"\n{fields.get(kind, "")}'

    def _database(self) -> Any:
        return create_engine(os.environ[URL], poolclass=NullPool).begin()

    def files_per_batch(self, most: int) -> None:
        """How many files the next driver's query takes in a batch."""
        self.most.write_text(str(most), encoding="utf-8")

    def rows_of(self, output: Output) -> Counter[str]:
        if output == "delta":
            lake = self.folder / "lake"
            if not (lake / "_delta_log").exists():
                return Counter()
            return Counter(DeltaTable(str(lake)).to_pyarrow_table()["k"].to_pylist())
        if output == "ledger":
            with self._database() as connection:
                return Counter(str(key) for (key,) in connection.execute(text("SELECT k FROM orders")))
        if output == "append":
            file = self.folder / "rows"
            return Counter(file.read_text().split()) if file.exists() else Counter()
        return Counter(path.name for path in (self.folder / "keys").glob("*"))

    def rows(self) -> Counter[str]:
        """How often each key is in the outputs, which have the same rows."""
        found = [self.rows_of(one) for one in self.outputs]
        assert all(one == found[0] for one in found), "one output has other rows than the other"
        return found[0]

    def keys_of(self, files: range) -> Counter[str]:
        """The keys that these files were the first to bring; the very first one brings more."""
        return Counter(f"k{n}" for n in range((files.start + 1) * KEYS, (files.stop + 1) * KEYS))

    def saved_and_killed(self) -> str:
        """A savepoint of batch 1, three batches after it, and a driver that is killed."""
        self.feed(2)
        self.do("start")
        self.until_batch(1)
        taken = self.document("savepoint")
        assert taken["batch"] == 1
        self.feed(3)
        self.until_batch(4)
        self.kill()
        assert self.rows() == self.expected()
        return str(taken["savepoint"])

    def go_on(self, batch: int) -> None:
        """Start the job, and stop it when it has committed a batch."""
        self.do("start")
        self.until_batch(batch)
        self.do("stop")

    def go_on_here(self, spark: SparkSession, checkpoint: str) -> None:
        """The same query in a session of the test's own, until all that has arrived is written."""
        application = runpy.run_path(str(self.folder / "app.py"))
        most = int(self.most.read_text())
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", "2")
        begun = application["writer"](session, str(self.source), str(self.folder), most, self.outputs)
        query = begun.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
