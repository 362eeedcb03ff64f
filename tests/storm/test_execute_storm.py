"""Executors that die, and those who asked: a verification, a restore, a replica, Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.workloads import LargeFiles
from streambank.core.errors import StorageError
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.replicas.replicate import newest_first, open_replica, replicate
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.work import plan_lines
from streambank.work.executor import Pace
from streambank.work.pace import Step
from streambank_spark.submit import executor as submit
from streambank_spark.submit.bundle import write_packages
from streambank_spark.submit.executor import SparkExecutor
from tests.support.bare.python import make_bare_python
from tests.support.paths import ROOT
from tests.support.refuses import refuses
from tests.support.spark.standalone_cluster import Cluster, running_cluster
from tests.support.waiting import wait_for

JOB = "orders"
CHECKPOINT = LargeFiles(partitions=64, files=1, file_bytes=3 << 19)
PORTION_BYTES = 1 << 20

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bare_python(tmp_path_factory.mktemp("python") / "venv")


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_lines, "MIN_PORTION_BYTES", PORTION_BYTES)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Repository, str]:
    CHECKPOINT.build(tmp_path / "checkpoint")
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    return repository, take(TakeRequest(open_store(tmp_path / "checkpoint"), repository, JOB)).savepoint


class Killer:
    """Kills one executor in the middle of a phase."""

    def __init__(self, cluster: Cluster, phase: str) -> None:
        self.cluster = cluster
        self.phase = phase
        self.pid: int | None = None
        self.said = ""
        self._log: Path | None = None

    def say(self, text: str) -> None:
        found = re.search(r"log: (\S+)$", text)
        assert found is not None
        self._log = Path(found[1])

    def progress(self, step: Step) -> None:
        if step.phase != self.phase:
            return
        if self.pid is None and 0 < step.files_done < step.files_total:
            self.pid = self.cluster.kill_an_executor()
        if step.files_done == step.files_total and self._log is not None:
            self.said = self._log.read_text(errors="replace")

    def check(self) -> None:
        assert self.pid is not None and "Lost executor" in self.said
        assert re.search(r"Lost task .*ExecutorLostFailure", self.said)


def executor(cluster: Cluster, python: Path, say: Callable[[str], None] = print) -> SparkExecutor:
    """With tasks that take a moment: a Python begins again for each, so there is a middle to be killed in."""
    own = {"spark.pyspark.python": str(python), "spark.python.worker.reuse": "false"}
    return SparkExecutor(cluster.master, {**cluster.conf, **own}, say=say)


def test_a_verification_that_loses_an_executor(
    cluster: Cluster, python: Path, saved: tuple[Repository, str]
) -> None:
    repository, savepoint = saved
    killer = Killer(cluster, "check")
    there = executor(cluster, python, killer.say)
    report = verify(repository, JOB, savepoint, "full", pace=Pace(executor=there, progress=killer.progress))
    killer.check()
    assert report.ok and report.bytes > 64 * CHECKPOINT.file_bytes


def test_a_restore_that_loses_an_executor(
    cluster: Cluster, python: Path, saved: tuple[Repository, str], tmp_path: Path
) -> None:
    repository, savepoint = saved
    killer = Killer(cluster, "write")
    target = open_store(tmp_path / "restored")
    there = executor(cluster, python, killer.say)
    restore(
        RestoreRequest(repository, savepoint, job=JOB, into=target),
        pace=Pace(executor=there, progress=killer.progress),
    )
    killer.check()
    source = open_store(tmp_path / "checkpoint")
    manifest = repository.load(JOB, savepoint)
    assert {info.path for info in target.list()} == {entry.path for entry in manifest.files}
    for entry in manifest.files:
        if not entry.path.startswith("state/0/_metadata"):
            assert target.read(entry.path) == source.read(entry.path), entry.path


def test_a_replica_that_loses_an_executor(
    cluster: Cluster, python: Path, saved: tuple[Repository, str], tmp_path: Path
) -> None:
    source, savepoint = saved
    killer = Killer(cluster, "copy")
    there = executor(cluster, python, killer.say)
    replica = open_replica(source, open_store(tmp_path / "replica"))
    (one,) = replicate(
        source, replica, newest_first(source), pace=Pace(executor=there, progress=killer.progress)
    )
    killer.check()
    objects = source.load(JOB, savepoint).objects()
    assert (one.state, one.moved_objects, one.errors) == ("copied", len(objects), ())
    assert one.moved_bytes == sum(objects.values()) > 64 * CHECKPOINT.file_bytes
    for info in source.store.list("objects"):
        assert replica.store.read(info.path) == source.store.read(info.path), info.path
    shutil.rmtree(tmp_path / "repository")
    report = verify(Repository.open(replica.store), JOB, savepoint, "full")
    assert report.ok and report.findings == ()


def test_without_the_packages_that_come_along_such_executors_can_do_nothing(
    cluster: Cluster, python: Path, saved: tuple[Repository, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of all tests whose executors have a bare Python."""
    repository, savepoint = saved
    monkeypatch.setattr(submit, "write_packages", lambda target, names: write_packages(target, []))
    with refuses(StorageError, "missing-package", match="blake3"):
        verify(repository, JOB, savepoint, "full", pace=Pace(executor=executor(cluster, python)))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_takes_its_application_along(
    cluster: Cluster, python: Path, saved: tuple[Repository, str], tmp_path: Path, how: signal.Signals
) -> None:
    """By Ctrl-C, or by SIGKILL, when nobody is left to end it but itself."""
    target = tmp_path / "restored"
    conf = {**cluster.conf, "spark.pyspark.python": str(python)}
    options = [each for key, value in conf.items() for each in ("--spark-conf", f"{key}={value}")]
    # The portions are as many as there are tasks, so that it lasts. What runs in the background of a shell
    # inherits that Ctrl-C is ignored.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from streambank.work import plan_lines; plan_lines.MIN_PORTION_BYTES = 1\n"
        "plan_lines.MIN_PORTION_FILES = 1; plan_lines.PORTIONS = 10**9\n"
        "import sys; from streambank.cli.run import run; sys.exit(run(sys.argv[1:]))"
    )
    words = ["restore", saved[1], "-r", str(tmp_path / "repository"), "--job", JOB, "--into", str(target)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--on", "spark", "--master", cluster.master, *options],
        env=os.environ | {"PYTHONPATH": str(ROOT / "provider"), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for("begin of the writes", lambda: len(list(target.glob("state/0/*/SSTs/*.sst"))) > 2)
        submitted = applications(tmp_path)
        assert submitted and cluster.state()["activeapps"]
        process.send_signal(how)
        assert process.wait(60) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    wait_for("end of the application", lambda: not applications(tmp_path))
    wait_for("its end for the master", lambda: not cluster.state()["activeapps"])
    wait_for("end of the executors", lambda: not cluster.executors())
    if how == signal.SIGINT:
        assert not list(target.glob("**/*.sst")) and not (target / "metadata").exists()
    else:
        # What is there is a restore that died: the next one knows, and finishes it.
        repository = Repository.open(open_store(tmp_path / "repository"))
        report = restore(RestoreRequest(repository, saved[1], job=JOB, into=open_store(target)))
        assert report.layout.cleared_files > 2


def applications(folder: Path) -> list[int]:
    """Pids of what spark-submit started with a plan below a folder: the JVM and the driver's Python."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{folder}/streambank-spark-".encode() in words and b"execute_plan.py" in words:
            found.append(int(place.parent.name))
    return found
