"""A real job that tells numbers which were not seen before, and what it should have told.

Each round brings the same numbers again: those whose state has expired are told once more, and no others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.repository.repository import Repository
from streambank.storage import open_store
from tests.support.drivers.real_driver import APPLICATIONS
from tests.support.paths import ROOT
from tests.support.spark.jvm import spark_options
from tests.support.waiting import wait_for

NUMBERS = 40
JOBS = """
repository = "{repository}"
[jobs.seen]
application = "{application}"
args = ["{folder}"]
checkpoint = "{checkpoint}"
master = "local[2]"
[jobs.seen.spark]
{spark}
"""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": spark_options(),
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
}
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'provider'}:{ROOT}"}


class SeenJob:
    """The job, what it has told, and what it should have.

    Args:
        folder: For input, output and the declaration; checkpoint and repository, too, unless said otherwise.
    """

    def __init__(
        self,
        folder: Path,
        provider: str,
        *,
        checkpoint: str = "checkpoint",
        repository: str = "repository",
        spark: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.jobs = folder / "jobs.toml"
        (folder / "in").mkdir()
        kind = {"spark.sql.streaming.stateStore.providerClass": provider}
        settings = {**SETTINGS, **kind, **(spark or {})}
        self.jobs.write_text(
            JOBS.format(
                application=APPLICATIONS / "seen.py",
                folder=folder,
                checkpoint=checkpoint,
                repository=repository,
                spark="\n".join(f'"{name}" = "{value}"' for name, value in settings.items()),
            )
        )
        self.rounds = 0
        self.expected: Counter[int] = Counter()

    @property
    def job(self) -> Job:
        return load_jobs(self.jobs).job("seen")

    def arrive(self, *, forgotten: int = 0) -> None:
        """Bring all numbers once more; those that are multiples of `forgotten` are told again."""
        self.rounds += 1
        for half in range(2):
            path = self.folder / f"{self.rounds}-{half}"
            path.write_text("".join(f"{number}\n" for number in range(half, NUMBERS, 2)))
            path.rename(self.folder / "in" / path.name)
        told = range(NUMBERS) if self.rounds == 1 else range(0, NUMBERS, forgotten) if forgotten else ()
        self.expected.update(told)

    def told(self) -> Counter[int]:
        """What the sink holds, by its log."""
        log = self.folder / "out" / "_spark_metadata"
        files = set()
        for path in log.glob("[0-9]*") if log.is_dir() else ():
            for line in path.read_text().splitlines()[1:]:
                files.add(json.loads(line)["path"].removeprefix("file://"))
        lines = [line for file in files for line in Path(file).read_text().splitlines()]
        return Counter(json.loads(line)["number"] for line in lines)

    def settle(self) -> None:
        """Wait until all input is read, of which a batch takes one file, and compare."""
        inputs = 2 * self.rounds

        def read() -> bool:
            generation = self.job.records().generation()
            assert generation is not None
            store = open_store(generation.location)
            committed = max((int(name) for name in store.names("commits") if name.isdecimal()), default=None)
            if committed is None:
                return False
            offset = json.loads(store.read(f"offsets/{committed}").decode().splitlines()[-1])
            return bool(offset["logOffset"] == inputs - 1)

        wait_for("all input", read, 120)
        assert self.told() == self.expected

    def savepoint_count(self) -> int:
        repository = Repository.open(open_store(self.job.repository), create=True)
        return len(list(repository.manifests("seen")))

    def command(self, *arguments: str) -> list[str]:
        return [
            sys.executable, "-m", "streambank", "job", *arguments, "--jobs", str(self.jobs), "--json",
            "--spark-conf", "spark.driver.memory=700m",
        ]  # fmt: skip

    def streambank(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            env={**os.environ, **ENVIRONMENT},
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
