"""Savepoint work that operators send to Spark executors by the Spark provider's hook; no JVM, no PATH."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streambank.core.errors import InputError, StorageError
from streambank.driver.installed import Installation
from streambank.savepoint.verify import verify
from streambank.work.executor import BySize, Pace
from streambank_airflow.connections.spark import SparkChoice
from streambank_airflow.hooks.recovery import RecoveryVerbs
from streambank_airflow.hooks.repository import RepositoryVerbs
from streambank_airflow.hooks.savepoints import SavepointVerbs
from streambank_airflow.operators.repository import ReplicateSavepointsOperator
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator
from tests.support.jobs.simulated_job import JOB, SimulatedJob
from tests.support.refuses import refuses
from tests.support.spark.fake_spark_submit import fake_spark

pytestmark = pytest.mark.usefixtures("airflow_database")
SECRET = "secret-of-airflow"


@pytest.fixture
def shop(tmp_path: Path) -> SimulatedJob:
    return SimulatedJob(tmp_path, state_bytes=400_000).run(6)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker as they are: nothing of Spark on the PATH, and Airflow's secrets in the environment."""
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", SECRET)
    spark = {"conn_type": "spark", "host": "spark://there", "port": 7077, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps(spark))
    return fake_spark(tmp_path, monkeypatch)


def none() -> None:
    """The job names no Spark."""


def test_a_take_goes_through_the_hook(shop: SimulatedJob, seen: Path) -> None:
    said: list[str] = []
    executor = SparkChoice("spark_here", {"spark.executor.memory": "2g"}, None, "spark").executor(
        said.append, none
    )
    result = shop.take(pace=Pace(executor=executor))
    assert verify(shop.repository, JOB, result.savepoint, "full").ok
    arguments, environment, conf, mode, _ = json.loads(seen.read_text())
    assert arguments[arguments.index("--master") + 1] == "spark://there:7077"
    assert arguments[arguments.index("--deploy-mode") + 1] == "client"
    assert "spark.executor.memory=2g\n" in conf and stat.S_IMODE(mode) == 0o600
    assert SECRET not in json.dumps([arguments, environment, conf])
    assert "connection spark_here" in said[0] and "the log of this task" in said[0]


@pytest.mark.parametrize("how", ["dead", "silent"])
def test_an_application_that_did_not_do_it(shop: SimulatedJob, seen: Path, tmp_path: Path, how: str) -> None:
    executor = SparkChoice("spark_here", {"spark.fake": how}, None, "spark").executor(print, none)
    with refuses(StorageError, "spark-failed", match="the log of this task"):
        shop.take(pace=Pace(executor=executor))
    assert not list(tmp_path.glob("streambank-spark-*"))


@pytest.mark.parametrize("has_own", [True, False])
def test_the_jobs_own_spark_submits_where_none_is_installed(
    shop: SimulatedJob, seen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_own: bool
) -> None:
    def missing() -> Installation:
        raise InputError("Nothing is installed.", code="no-pyspark")

    monkeypatch.setattr("streambank_spark.submit.executor.find_installation", missing)
    home = tmp_path / "spark"
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        f'repository = "r"\n[jobs.{JOB}]\napplication = "a.py"\ncheckpoint = "c"\n'
        + (f'spark_home = "{home}"\n' if has_own else 'spark_home = "/nowhere"\n')
    )
    operator = CreateSavepointOperator(
        job=JOB, jobs_file=str(jobs), task_id="t", spark_conn_id="spark_here", on="spark"
    )
    if has_own:
        bad = {"conn_type": "spark", "host": "spark://there", "extra": {"spark-binary": "spark3-submit"}}
        with monkeypatch.context() as patch:
            patch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps(bad))
            with pytest.raises(InputError, match="spark3-submit"):  # what is named wrongly is not replaced
                shop.take(pace=Pace(executor=operator.machines))
        result = shop.take(pace=Pace(executor=operator.machines))
        assert verify(shop.repository, JOB, result.savepoint, "full").ok and seen.exists()
        return
    with pytest.raises(InputError, match="Nothing is installed"):
        shop.take(pace=Pace(executor=operator.machines))


def test_every_operator_hands_on_who_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs = tmp_path / "streaming_jobs.toml"
    jobs.write_text(f'repository = "r"\n[jobs.{JOB}]\napplication = "a.py"\ncheckpoint = "c"\n')
    asked: list[Any] = []

    def noting(self: Any, *args: Any, executor: Any = None, **_: Any) -> Any:
        asked.append(executor or args[-1].executor)
        raise InputError("enough", code="bad-input")

    for part, verb in (
        (SavepointVerbs, "take"),
        (SavepointVerbs, "verify"),
        (RecoveryVerbs, "restore"),
        (RecoveryVerbs, "plan"),
        (RepositoryVerbs, "replicate"),
    ):
        monkeypatch.setattr(part, verb, noting)
    monkeypatch.setattr(RecoveryVerbs, "restored_before", lambda *_, **__: None)
    context: Any = {"dag_run": _Run(), "ti": _Run()}
    choice: dict[str, Any] = {
        "job": JOB,
        "task_id": "t",
        "spark_conn_id": "spark_here",
        "jobs_file": str(jobs),
    }
    for operator in (
        CreateSavepointOperator(**choice),
        VerifySavepointOperator(**choice),
        RestoreSavepointOperator(**choice),
        RestoreSavepointOperator(plan_only=True, **choice),
        ReplicateSavepointsOperator(**choice),
    ):
        with pytest.raises(Exception, match="enough"):
            operator.execute(context)
    assert len(asked) == 5 and all(isinstance(each, BySize) for each in asked)


def test_without_a_connection_the_worker_does_it() -> None:
    assert SparkChoice().executor(print, none) is None


def test_a_choice_that_there_is_not() -> None:
    with refuses(InputError, "bad-choice"):
        SparkChoice("spark_here", on="mars").executor(print, none)


class _Run:
    dag_id = run_id = task_id = "x"
    try_number, max_tries, map_index = 1, 0, -1
    task = SimpleNamespace(retries=0)

    def xcom_push(self, *_: Any, **__: Any) -> None:
        """Nothing is kept."""

    def xcom_pull(self, *_: Any, **__: Any) -> None:
        """Nothing was kept."""

    triggering_user_name = None
