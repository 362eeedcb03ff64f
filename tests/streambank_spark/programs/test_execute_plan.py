"""A take on a real cluster: two workers of one core, a repository on S3, an executor killed in the middle.

The executors' Python has neither blake3 nor boto3: they get both by the archive that comes along.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.workloads import LargeFiles
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.work import plan_lines
from streambank.work.executor import Pace
from streambank.work.pace import Step
from streambank_spark.submit.executor import SparkExecutor
from tests.support.bare.python import make_bare_python
from tests.support.spark.standalone_cluster import Cluster, running_cluster
from tests.support.storage.s3_servers import S3Server, moto_server

__all__ = ["moto_server"]

JOB = "orders"
CHECKPOINT = LargeFiles(partitions=48, files=1, file_bytes=3 << 19)


@pytest.fixture(scope="module")
def cluster(moto_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its executors have the credentials of S3 in their own environment."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), environment=moto_server.environment) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executors' Python: it has neither blake3 nor boto3."""
    return make_bare_python(tmp_path_factory.mktemp("python") / "venv")


@pytest.fixture
def s3(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    return moto_server.use(monkeypatch)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many portions, though there is little."""
    monkeypatch.setattr(plan_lines, "MIN_PORTION_BYTES", 1 << 20)
    monkeypatch.setattr(plan_lines, "MIN_PORTION_FILES", 20)


KILLS = 3
"""On a busy machine an executor may have been given nothing when it dies; one of so many was at a task."""


class Killer:
    """Kills an executor once the first outcome has come, and keeps what Spark said about it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.killed_at: Step | None = None
        self.pid = 0
        self.log: Path | None = None
        self.said = ""

    def say(self, text: str) -> None:
        found = re.search(r"log: (\S+)$", text)
        assert found is not None, text
        self.log = Path(found[1])

    def progress(self, step: Step) -> None:
        if self.killed_at is None and step.phase == "copy" and 0 < step.files_done < step.files_total:
            self.killed_at = step
            self.pid = self.cluster.kill_an_executor()
        if step.files_done == step.files_total and self.log is not None:
            self.said = self.log.read_text(errors="replace")


def executor(cluster: Cluster, python: Path, **more: object) -> SparkExecutor:
    conf = {**cluster.conf, "spark.pyspark.python": str(python)}
    return SparkExecutor(cluster.master, conf, **more)  # type: ignore[arg-type]  # those of the class


@pytest.mark.storm
@pytest.mark.spark
@pytest.mark.slow
def test_an_executor_killed_in_the_middle_changes_nothing(
    cluster: Cluster, s3: S3Server, python: Path, tmp_path: Path
) -> None:
    CHECKPOINT.build(tmp_path / "checkpoint")
    source = open_store(tmp_path / "checkpoint")
    here = Repository.open(open_store(tmp_path / "here"), create=True)
    expected = here.load(JOB, take(TakeRequest(source, here, JOB)).savepoint)

    for _ in range(KILLS):
        repository = Repository.open(open_store(s3.location()), create=True)
        killer = Killer(cluster)
        result = take(
            TakeRequest(source, repository, JOB),
            pace=Pace(executor=executor(cluster, python, say=killer.say), progress=killer.progress),
        )
        # The fault fired in the middle, and Spark lost an executor.
        assert killer.killed_at is not None and killer.killed_at.files_done < killer.killed_at.files_total / 2
        assert "Lost executor" in killer.said

        manifest = repository.load(JOB, result.savepoint)
        assert result.savepoint == expected.savepoint and result.replans == 0
        assert manifest.files == expected.files
        assert (manifest.operators, manifest.query_id, manifest.bytes) == (
            expected.operators,
            expected.query_id,
            expected.bytes,
        )
        report = verify(Repository.open(repository.store), JOB, result.savepoint, "full")
        assert report.ok and report.findings == ()
        if re.search(r"Lost task .*ExecutorLostFailure", killer.said):
            return
    pytest.fail("nothing was under way when it died, each time")


def test_the_python_of_the_executors_has_neither_package(python: Path) -> None:
    for package in ("blake3", "boto3"):
        done = subprocess.run(
            [str(python), "-c", f"import {package}"], capture_output=True, text=True, check=False
        )
        assert f"No module named '{package}'" in done.stderr
