"""A small query with state that writes by foreachBatch, one file a batch, until there is no file left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.spark.sessions import BY_FILE_SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Duplicates:
    """Each file has two keys, of which the file after it has one again; each key passes once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark.newSession()  # with settings that no other test has
        self.input, self.checkpoint = folder / "in", folder / "ck"
        self.input.mkdir()
        self.files = 0
        self.query_id = self.run_id = ""
        for name, value in BY_FILE_SYSTEM.items():
            self.spark.conf.set(name, value)

    def add(self, files: int) -> None:
        for _ in range(files):
            keys = [{"k": f"k{self.files}"}, {"k": f"k{self.files + 1}"}]
            text = "".join(f"{json.dumps(key)}\n" for key in keys)
            (self.input / f"{self.files:04d}.json").write_text(text, encoding="utf-8")
            self.files += 1

    def expected(self) -> Counter[str]:
        """What the output of a run is that nothing disturbs."""
        return Counter(f"k{n}" for n in range(self.files + 1))

    def run(
        self, write: Callable[[DataFrame, int], None], *, fails: str = "", files_per_batch: int = 1
    ) -> str:
        """Run until all that has arrived is written, or until the query fails.

        Args:
            fails: What its failure says; empty if it must not fail.
        """
        stream = self.spark.readStream.schema("k STRING").option("maxFilesPerTrigger", files_per_batch)
        frame = stream.json(str(self.input)).coalesce(1).dropDuplicates(["k"])
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        self.query_id, self.run_id = str(query.id), str(query.runId)
        try:
            query.awaitTermination()
        except Exception as error:
            said, cause = str(error), getattr(error, "_cause", None)
            while cause is not None:
                said, cause = f"{said}\n{cause}", getattr(cause, "_cause", None)
            assert fails and fails in said, said
            return said
        assert not fails, f"it did not fail with {fails}"
        return ""
