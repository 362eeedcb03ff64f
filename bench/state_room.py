"""Operations on state beside Spark's own full read of it, in a separate process.

    python -m bench.state_room FOLDER PROVIDER KEYS MASTER ROUNDS

The state (million_keys.py) is made in FOLDER where it is not there. MASTER is `local[2]`, or `cluster` for a
standalone one with two workers of one core. In every round all work on the same savepoint, and the full read
begins and ends it. One line of JSON comes out: for each operation and round seconds, and seconds of a
processor (this process, the JVM and its Python workers, the cluster's executors).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.million_keys import JOB, PARTITIONS
from bench.tree import environment
from streambank.repository.repository import Repository
from streambank.storage import open_store
from streambank_spark.private.state_rewriter import FORMAT_VERSION, quiet_session, rewrite_stores
from streambank_spark.rewrite.derive import SourceSavepoint
from streambank_spark.rewrite.request import carry_out
from streambank_spark.rewrite.rewrite_request import RewriteRequest
from streambank_spark.rewrite.skeleton import lay_skeleton
from streambank_spark.state.diff import diff_states
from streambank_spark.state.digest import digest_of
from streambank_spark.state.read import RowChoice, export_state, read_rows
from streambank_spark.state.staging import Materialized, Staging, materialized_savepoint
from streambank_spark.state.state import QueryState
from streambank_spark.submit.executor_packages import VARIABLE, python_of_workers
from tests.support.spark.standalone_cluster import running_cluster

UNIT = "Spark's own full read"
AGAIN = "again"
"""The same at the end of the round."""
DIGEST = "`state digest`"
COMPACT = "`state compact`, 10 % of the keys"
WRITER = "Spark's own `StateRewriter`, nothing changed"
"""What a rewrite of RocksDB state takes at least: nothing is decided, checked or saved."""
GOES = "key.key LIKE '%7'"
"""One key of ten."""


class Room:
    """The operations, on one savepoint and an earlier one."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        repository: Repository,
        earlier: Materialized,
        later: Materialized,
    ) -> None:
        self.spark, self.folder, self.repository = spark, folder, repository
        self.earlier, self.later = earlier, later
        self.workshop = Staging(spark.sparkContext.master or "", str(folder / "work"), _quiet)

    def operations(self) -> dict[str, Callable[[], Any]]:
        """What is measured, in this order."""
        compact = RewriteRequest(operation="compact", where=GOES)
        found: dict[str, Callable[[], Any]] = {
            UNIT: self.full_read,
            "`state read` of one key": self.look_up,
            "`state export`": self.export,
            DIGEST: lambda: digest_of(self.state(self.later)),
            "`state diff`": lambda: diff_states(
                self.state(self.earlier), self.state(self.later), None, None, 10
            ),
            "`state compact`, a dry run": lambda: self.ask(replace(compact, dry_run=True)),
            COMPACT: lambda: self.ask(compact),
        }
        if self.state(self.later).closure.spark.provider == "rocksdb":
            rescale = RewriteRequest(operation="rescale", partitions=2 * PARTITIONS)
            found["`rescale` to twice as many partitions"] = lambda: self.ask(rescale)
            found[WRITER] = self.write
        return found

    def state(self, laid: Materialized) -> QueryState:
        """Opened again, as each command does."""
        return QueryState(self.spark, laid.location)

    def full_read(self) -> None:
        """All rows with all columns, by Spark's state reader alone."""
        session = self.spark.newSession()
        session.conf.set(FORMAT_VERSION, "1")
        frame = session.read.format("statestore").load(self.later.location)
        frame.select(F.xxhash64(*frame.columns).alias("hash")).agg(F.bit_xor("hash")).collect()

    def look_up(self) -> None:
        """One key."""
        rows, _ = read_rows(self.state(self.later), RowChoice(key="customer-000000042"), 10)
        if len(rows) != 1:
            raise RuntimeError("the key is not there: the figures would mean nothing")

    def export(self) -> None:
        """All rows as Parquet."""
        target = self.folder / "exported"
        export_state(self.spark, self.state(self.later), str(target), RowChoice())
        rmtree(target)

    def write(self) -> None:
        """State rewritten by Spark alone."""
        state = self.state(self.later)
        target = open_store(self.folder / "written")
        lay_skeleton(state.store, target, state.closure, derived_from="nothing")
        session = quiet_session(self.spark, state.closure.spark.checkpoint_format)
        batch = state.closure.batch
        rewrite_stores(session, state.location, target.uri, batch, lambda operator, store, frame: frame)
        rmtree(self.folder / "written")

    def ask(self, order: RewriteRequest) -> None:
        """Make a savepoint of another one: lay out, rewrite, read again and compare, save."""
        savepoint = self.later.manifest.savepoint
        source = SourceSavepoint(self.spark, self.repository, JOB, savepoint, self.workshop)
        made = carry_out(source, order).savepoint
        if (made is None) != order.dry_run:
            raise RuntimeError("it was not done: the figures would mean nothing")


def main(folder: Path, provider: str, keys: int, master: str, rounds: int) -> dict[str, Any]:
    """Measure so many rounds, after one that is not measured."""
    earlier, later = _savepoints(folder / provider, provider, keys)
    found: list[dict[str, tuple[float, float]]] = []
    with _session(master, folder) as spark:
        workshop = Staging(master, str(folder / "work"), _quiet)
        repository = Repository.open(open_store(folder / provider / "repository"))
        with (
            materialized_savepoint(repository, JOB, earlier, workshop) as old,
            materialized_savepoint(repository, JOB, later, workshop) as new,
        ):
            room = Room(spark, folder, repository, old, new)
            for number in range(rounds + 1):
                said = {name: _timed(do) for name, do in room.operations().items()}
                said[AGAIN] = _timed(room.full_read)
                print(number, json.dumps(said), file=sys.stderr, flush=True)
                if number:
                    found.append(said)
    return {"rounds": found}


def _savepoints(folder: Path, provider: str, keys: int) -> tuple[str, str]:
    """The earlier one and the later one."""
    said = folder / "said.json"
    if not said.exists():
        made = subprocess.run(
            [sys.executable, "-m", "bench.million_keys", str(folder), provider, str(keys)],
            env=environment(SPARK_LOCAL_IP="127.0.0.1"),
            check=True,
            stdout=subprocess.PIPE,
        )
        said.write_bytes(made.stdout.splitlines()[-1])
    found = json.loads(said.read_bytes())
    return found["earlier"], found["later"]


@contextmanager
def _session(master: str, folder: Path) -> Iterator[SparkSession]:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master == "cluster":
        logs = folder / "cluster"
        logs.mkdir(exist_ok=True)
        with running_cluster(logs) as cluster, _started(cluster.master, settings) as spark:
            yield spark
    else:
        with _started(master, settings) as spark:
            yield spark


@contextmanager
def _started(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    if (python := python_of_workers(master)) is not None:
        os.environ[VARIABLE] = python
    builder = SparkSession.builder.appName("bench").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _timed(do: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and seconds of a processor of this process and all that it started."""
    used, began = _used_s(), time.perf_counter()
    do()
    return time.perf_counter() - began, _used_s() - used


def _used_s() -> float:
    """What this process and all below it have used, those that have ended and were waited for, too."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = text[text.rindex(")") + 2 :].split()
        pid = int(stat.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    return sum(used for pid, used in ticks.items() if _is_ours(pid, parents)) / os.sysconf("SC_CLK_TCK")


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if pid == os.getpid():
            return True
        pid = parents[pid]
    return False


def _quiet(text: str) -> None:
    """Nobody listens."""


if __name__ == "__main__":
    place, kept_by, many, where, times = sys.argv[1:6]
    print(json.dumps(main(Path(place), kept_by, int(many), where, int(times))), flush=True)
