"""A cell of the exactly-once storm, on whichever Spark: many savepoints, several restored and continued.

`python -m tests.support.spark.exactly_once_cell` plays a cell for each line that it reads, with the PySpark
that is first on its path and all else of `.venv`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.paths import ROOT
from tests.support.spark.exactly_once_oracle import Trial
from tests.support.spark.oracle_savepoints import Savepoints, check_savepoints, spread
from tests.support.spark.queries import QUERIES
from tests.support.spark.releases import other_spark
from tests.support.spark.sessions import own_spark, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWER = "answer:"


def play(
    spark: SparkSession, folder: Path, query: str, layout: str, *, batches: int = 16, restored: int = 4
) -> None:
    """Run a query while savepoints are taken, and continue some of them.

    Raises:
        AssertionError: Something is not as in a run that nothing disturbs.
    """
    prepare(spark)
    trial = Trial(spark, QUERIES[query], layout, folder, batches)
    truth = trial.undisturbed()
    savepoints = Savepoints(folder / "repository", trial)

    takes = trial.run_live(savepoints.take)

    assert trial.result(trial.sink) == truth, "taking savepoints disturbed the query"
    assert len(takes.saved) >= restored, takes
    for saved in takes.saved:
        assert savepoints.findings(saved) == []
    savepoints.lose_the_checkpoint()
    check_savepoints(trial, savepoints, spread(takes.saved, restored, below=batches - 1), truth)


@dataclass(frozen=True, slots=True)
class CellProcess:
    """A process with the Spark of a release, for one cell after the other."""

    version: str
    process: subprocess.Popen[str]

    def play(self, folder: Path, query: str, layout: str, *, batches: int, restored: int) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = [str(folder), query, layout, batches, restored]
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith(_ANSWER):
                found = json.loads(line.removeprefix(_ANSWER))
                assert found == {"version": self.version}, found.get("failed", found)
                return
        raise AssertionError(f"the process with Spark {self.version} ended")


@contextmanager
def cell_process(release: str) -> Iterator[CellProcess]:
    """A process with the Spark of a release, which is installed the first time; it ends with the block."""
    spark = other_spark(release)
    (packages,) = spark.python.parent.parent.glob("lib/python*/site-packages")
    path = os.pathsep.join(str(one) for one in (packages, ROOT / "provider", ROOT))
    command = [sys.executable, "-W", "ignore", "-m", __name__]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        try:
            yield CellProcess(spark.version, process)
        finally:
            process.kill()


def _main() -> None:
    spark = own_spark()
    for line in sys.stdin:
        folder, query, layout, batches, restored = json.loads(line)
        answer = {"version": spark.version}
        try:
            play(spark, Path(folder), query, layout, batches=batches, restored=restored)
        except Exception:
            answer["failed"] = traceback.format_exc()
        print(_ANSWER + json.dumps(answer), flush=True)


if __name__ == "__main__":
    _main()
