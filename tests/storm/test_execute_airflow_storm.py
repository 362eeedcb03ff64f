"""A DAG whose tasks send their work to a real cluster: by a connection, the provider's hook and spark-submit.

The repository and its replica are on S3. The executors' Python has neither blake3 nor boto3, and their only
credentials are those of a file on the Airflow worker; what the worker and Airflow itself hold is their own.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from airflow.sdk import DAG

from bench.workloads import LargeFiles
from streambank.repository.repository import Repository
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from streambank.work import plan_lines
from streambank_airflow.operators.repository import ReplicateSavepointsOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
from tests.support.airflow_face.metadata_db import airflow_database, run_dag, task_states, xcom
from tests.support.bare.python import make_bare_python
from tests.support.spark.standalone_cluster import Cluster, running_cluster
from tests.support.storage.s3_servers import SECRET_KEY, S3Server, moto_server
from tests.support.waiting import wait_for

__all__ = ["airflow_database", "moto_server"]

JOB = "orders"
CHECKPOINT = LargeFiles(partitions=8, files=1, file_bytes=3 << 19)
OF_THE_EXECUTORS = "secret-of-the-executors-9876543210"
OF_AIRFLOW = "secret-of-airflow-5432109876"
SECRETS = (OF_THE_EXECUTORS, OF_AIRFLOW, SECRET_KEY)
LOOK_EVERY_S = 0.05

pytestmark = [pytest.mark.spark, pytest.mark.airflow, pytest.mark.usefixtures("airflow_database")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its worker has no credentials of S3; what two do that lose each other is test_execute_storm.py's."""
    with running_cluster(tmp_path_factory.mktemp("cluster"), workers=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bare_python(tmp_path_factory.mktemp("python") / "venv")


@dataclass(frozen=True, slots=True)
class Place:
    """An Airflow worker, and what its tasks are about.

    Attributes:
        conf: Spark properties that may be seen.
        properties: The file of those that may not.
    """

    folder: Path
    repository: str
    conf: dict[str, str]
    properties: Path

    def arguments(self, **more: Any) -> dict[str, Any]:
        return {
            "job": JOB,
            "spark_conn_id": "spark_here",
            "spark_conf": self.conf,
            "spark_properties": str(self.properties),
            "on": "spark",
            **more,
        }


@pytest.fixture
def place(
    cluster: Cluster, python: Path, moto_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """Nothing of Spark is on the worker's PATH, and its connection says what only a hook understands."""
    java = shutil.which("java")
    monkeypatch.setenv("PATH", os.defpath if java is None else f"{os.defpath}:{Path(java).parent}")
    assert shutil.which("spark-submit") is None
    monkeypatch.setattr(plan_lines, "MIN_PORTION_BYTES", 1 << 20)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    moto_server.use(monkeypatch)
    repository = moto_server.location()
    master, _, port = cluster.master.rpartition(":")
    connections = {
        "STREAMBANK_DEFAULT": {"conn_type": "streambank", "extra": {"repository": repository}},
        "SPARK_HERE": {"conn_type": "spark", "host": master, "port": int(port), "password": OF_AIRFLOW},
        "ELSEWHERE": {"conn_type": "generic", "password": OF_AIRFLOW},
    }
    for name, connection in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    settings = moto_server.environment | {"AWS_SECRET_ACCESS_KEY": OF_THE_EXECUTORS}
    properties = tmp_path / "executors.conf"
    properties.touch(mode=0o600)
    properties.write_text("".join(f"spark.executorEnv.{key} {value}\n" for key, value in settings.items()))
    CHECKPOINT.build(tmp_path / "checkpoint")
    conf = {**cluster.conf, "spark.pyspark.python": str(python)}
    return Place(tmp_path, repository, conf, properties)


@dataclass(slots=True)
class Processes:
    """Looks at every process of this machine that works for a plan, again and again until the `with` ends.

    Attributes:
        environments: The environments of those that run on the Airflow worker: spark-submit and the driver.
    """

    cluster: Cluster
    arguments: set[bytes] = field(default_factory=set)
    environments: set[bytes] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Processes:
        self._thread = threading.Thread(target=self._look, name="processes")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    words = (folder / "cmdline").read_bytes()
                    if b"execute_plan.py" in words:
                        self.environments.add((folder / "environ").read_bytes())
                    elif self.cluster.master.encode() not in words and b"Executor" not in words:
                        continue
                except (FileNotFoundError, ProcessLookupError, PermissionError):
                    continue  # it has ended, or is somebody else's
                self.arguments.add(words)


def applications(cluster: Cluster) -> list[str]:
    """The names of those that have ended well, in the order in which they began."""
    wait_for("end of all applications", lambda: not cluster.state()["activeapps"])
    done = sorted(cluster.state()["completedapps"], key=lambda each: each["starttime"])
    return [each["name"] for each in done if each["state"] == "FINISHED"]


def cluster_logs(cluster: Cluster) -> str:
    """What master, workers and executors have said."""
    paths = [path for path in cluster.folder.rglob("*") if path.name in ("stdout", "stderr")]
    assert paths, "no executor has said anything"
    return "".join(path.read_text(errors="replace") for path in [*paths, *cluster.folder.glob("*.log")])


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "_metadata" not in path.parts  # holds the path of its own checkpoint
    }


def test_a_dag_takes_verifies_replicates_and_restores_on_executors(
    cluster: Cluster, place: Place, moto_server: S3Server, capfd: pytest.CaptureFixture[str]
) -> None:
    replica, restored = moto_server.location(), place.folder / "restored"
    before = applications(cluster)
    with DAG("on_spark", schedule=None, render_template_as_native_obj=True) as dag:
        taken = "{{ ti.xcom_pull(task_ids='take')['savepoint'] }}"
        take = CreateSavepointOperator(
            task_id="take", checkpoint=str(place.folder / "checkpoint"), **place.arguments()
        )
        check = VerifySavepointOperator(task_id="verify", level="full", savepoint=taken, **place.arguments())
        replicate = ReplicateSavepointsOperator(task_id="replicate", to=[replica], **place.arguments())
        restore = RestoreSavepointOperator(
            task_id="restore", savepoint=taken, into=str(restored), **place.arguments()
        )
        take >> check >> replicate >> restore
    with Processes(cluster) as processes:
        run = run_dag(dag)
    said = capfd.readouterr()

    assert set(task_states(run).values()) == {"success"}, said.out
    results = {task: xcom(run, task) for task in ("take", "verify", "replicate", "restore")}
    names = ["streambank-copy", "streambank-check", "streambank-move", "streambank-place"]
    assert applications(cluster)[len(before) :] == names
    assert results["verify"]["ok"] and results["verify"]["findings"] == 0
    assert results["replicate"]["copied"] == 1
    assert results["replicate"]["moved_bytes"] > 8 * CHECKPOINT.file_bytes
    checkpoint = files_of(place.folder / "checkpoint")
    assert files_of(restored) == {path: checkpoint[path] for path in files_of(restored)}
    assert sum(path.endswith(".sst") for path in files_of(restored)) == 8
    for location in (place.repository, replica):
        opened = Repository.open(open_store(location))
        assert verify(opened, JOB, results["take"]["savepoint"], "full").ok

    # Nobody saw what only some may know.
    argv = b"\n".join(processes.arguments).decode(errors="replace")
    assert "deploy.SparkSubmit" in argv and "CoarseGrainedExecutorBackend" in argv, "nobody was seen at work"
    assert len(processes.environments) >= len(names)
    environments = b"\n".join(processes.environments).decode(errors="replace")
    everything = argv + environments + said.out + said.err + cluster_logs(cluster) + json.dumps(results)
    assert [secret for secret in SECRETS if secret in everything] == []
    assert "AIRFLOW" not in environments
    assert "Spark-Submit cmd" in said.out and "execute_plan.py" in said.out, (
        "the task's log has no word of it"
    )
    assert list((place.folder / "tmp").glob("streambank-spark-*")) == []


def test_without_their_file_the_executors_can_do_nothing(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """The control: what they work with comes from there, and a failure is one error that names no secret."""
    lines = place.properties.read_text().splitlines()
    place.properties.write_text("".join(f"{line}\n" for line in lines if "_KEY" not in line))
    with DAG("on_spark_in_vain", schedule=None, render_template_as_native_obj=True) as dag:
        CreateSavepointOperator(
            task_id="take", checkpoint=str(place.folder / "checkpoint"), **place.arguments()
        )
    run = run_dag(dag)
    said = capfd.readouterr()
    assert task_states(run) == {"take": "failed"}
    assert "credentials" in said.out
    assert [secret for secret in SECRETS if secret in said.out + said.err] == []
    assert list(Repository.open(open_store(place.repository)).manifests()) == []
