"""Jobs for tests of people's own DAGs: what the fake is told, and that it does what a job does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from airflow.sdk import DAG

from streambank.core.errors import InputError, StorageError
from streambank.declaration.streaming_job import NotifyEntry, StreamingJob
from streambank.driver.launchers.local import own_processes
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.operators import (
    CheckSlaOperator,
    CreateSavepointOperator,
    RestoreSavepointOperator,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
    VerifySavepointOperator,
)
from streambank_airflow.sensors.job import BatchCommittedSensor, StreamingJobStatusSensor
from streambank_airflow.sensors.watermark import WatermarkSensor
from streambank_airflow.testing import FakeJobs
from streambank_airflow.testing.fake_jobs import _toml as as_toml
from streambank_airflow.testing.fixtures import fake_jobs
from streambank_spark.stand_in.told import Told
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom

pytestmark = pytest.mark.usefixtures("airflow_database")
__all__ = ["fake_jobs"]
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
ELSEWHERE = "/opt/airflow/dags/streaming_jobs.toml"
"""A jobs file that a DAG names, and this machine has not."""


def test_a_job_goes_through_its_life_by_operators(fake_jobs: FakeJobs) -> None:
    orders = fake_jobs.declare("orders")
    where: Any = {"job": "orders", "jobs_file": ELSEWHERE}
    with DAG("fake_life", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", **where)
        take: Any = CreateSavepointOperator(task_id="take", **where)
        verify = VerifySavepointOperator(
            task_id="verify", savepoint=take.output["savepoint"], level="full", **where
        )
        later = BatchCommittedSensor(
            task_id="later", after_batch=take.output["batch"], poke_interval=0.1, timeout=60, **where
        )
        sla = CheckSlaOperator(task_id="sla", on_breach="report", **where)
        stop = StopStreamingJobOperator(task_id="stop", savepoint=False, **where)
        restore = RestoreSavepointOperator(
            task_id="restore", savepoint=take.output["savepoint"], source="accept", **where
        )
        again = StartStreamingJobOperator(task_id="again", **where)
        start >> take >> verify >> later >> sla >> stop >> restore >> again

    run = run_dag(dag)

    assert set(task_states(run).values()) == {"success"}
    assert orders.state == "running"
    assert [one.savepoint for one in orders.savepoints] == [xcom(run, "take", "savepoint")]
    generation = orders.records.generation()
    assert generation is not None and generation.number == 2
    assert orders.batch > xcom(run, "take", "batch")


def test_event_time_comes_as_far_as_it_is_told_and_never_goes_back(fake_jobs: FakeJobs) -> None:
    orders = fake_jobs.declare("orders")
    orders.start()
    orders.advance(NOON)
    with DAG("fake_watermark", schedule=None) as dag:
        WatermarkSensor(
            task_id="passed", job="orders", moment=NOON.isoformat(), poke_interval=0.1, timeout=60
        )
    assert task_states(run_dag(dag)) == {"passed": "success"}

    orders.stop()
    orders.advance(datetime(2020, 1, 1, tzinfo=UTC))
    orders.start()
    orders.wait_for_batch(orders.batch + 2)
    (newest,) = (fake_jobs.directory / "checkpoints" / "orders" / "commits").glob(f"{orders.batch}")
    said = json.loads(newest.read_text().partition("\n")[2])
    assert said["nextBatchWatermarkMs"] == NOON.timestamp() * 1000


def test_it_can_fail_to_start_die_and_be_slow(fake_jobs: FakeJobs) -> None:
    orders = fake_jobs.declare("orders")
    orders.cannot_start("ValueError: no topic")
    with pytest.raises(StorageError, match="ValueError: no topic"):
        orders.start()

    orders.behaves()
    orders.takes(0.2)
    orders.dies(after=2, saying="java.lang.OutOfMemoryError: Java heap space")
    orders.start()
    with DAG("fake_death", schedule=None) as dag:
        StreamingJobStatusSensor(
            task_id="dead", job="orders", states=["failed"], failed_states=[], poke_interval=0.1, timeout=60
        )
    assert task_states(run_dag(dag)) == {"dead": "success"}
    assert orders.state == "failed"


def test_jobs_of_a_file_keep_their_policies_and_lie_elsewhere(fake_jobs: FakeJobs, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        """
repository = "s3://prod/savepoints"
[defaults]
master = "yarn"
[defaults.savepoint]
schedule = "@hourly"
[jobs.orders]
application = "/opt/jobs/orders.py"
checkpoint = "s3://prod/checkpoints/orders"
[jobs.orders.retention]
keep_last = 3
""",
        encoding="utf-8",
    )
    fake_jobs.declare_as(own)
    job = fake_jobs["orders"].job
    assert job.retention is not None and job.retention.keep_last == 3
    assert job.savepoint.schedule == "@hourly"
    assert job.checkpoint.startswith(f"file://{fake_jobs.directory}/")
    assert job.repository.startswith(f"file://{fake_jobs.directory}/")

    own.write_text("[jobs", encoding="utf-8")
    with pytest.raises(InputError, match="not valid TOML"):
        fake_jobs.declare_as(own)


def test_no_place_and_no_alert_of_a_file_is_taken_over(fake_jobs: FakeJobs, tmp_path: Path) -> None:
    alert = [{"class": "acme.PROD"}]
    job = {
        **of_production(get_type_hints(StreamingJob)),
        "spark": {"spark.hadoop.fs.s3a.endpoint": "PROD"},
        "upgrade": {"applications": ["PROD/*.py"]},
        "sla": {"copy_age": {"breach": "1h"}, "notify": alert, "state_rows": {"breach": 7}},
        "state": {"master": "PROD", "spark_home": "PROD", "python": "PROD", "work": "PROD"},
        "bootstrap": {"tables": ["PROD"]},
        "standby": {"checkpoint": "PROD", "repository": "PROD", "control": "PROD"},
        "copies": {"copy": {"checkpoint": "PROD", "savepoints": "PROD", "records": "PROD"}},
        "kafka": {"bootstrap": "PROD:9092"},
        "retention": {"keep_last": 3},
    }
    job["savepoint"] = {"closure": "minimal", "lock": "30d", "lock_mode": "compliance"}  # a file cannot be
    airflow = {"connection": "PROD", "pool": "PROD", "executor": "PROD", "on_failure": "acme.PROD"}
    defaults = {"notify": alert, "drill": {"scratch": "PROD", "batches": 2}, "airflow": airflow}
    own = tmp_path / "own.toml"
    own.write_text(f"defaults = {as_toml(defaults)}\njobs = {as_toml({'orders': job})}\n", encoding="utf-8")

    fake_jobs.declare_as(own)

    assert "PROD" not in fake_jobs.jobs_file.read_text(encoding="utf-8")
    found = fake_jobs["orders"].job
    assert (found.savepoint.closure, found.savepoint.lock, found.drill.batches) == ("minimal", None, 2)
    assert found.sla.objectives["state_rows"].breach == 7
    assert found.retention is not None and found.retention.keep_last == 3


def of_production(hints: Mapping[str, Any]) -> dict[str, Any]:
    """What a job may say of where it lies and who is alerted: all fields with such a type, at any depth."""
    found = {name: _said(hint) for name, hint in hints.items()}
    return {name: value for name, value in found.items() if value}


def _said(hint: Any) -> Any:
    if hint == NotifyEntry:
        return {"class": "acme.PROD"}
    if is_typeddict(hint):
        return of_production(get_type_hints(hint))
    if PathLike in (get_origin(one) for one in get_args(hint)):
        return "PROD"
    inner = [_said(one) for one in get_args(hint) if get_origin(hint) is not Mapping]
    value = next((one for one in inner if one), None)
    return [value] if value and get_origin(hint) is Sequence else value


def test_a_job_that_its_dag_declares_is_the_fake_one_of_that_name(fake_jobs: FakeJobs) -> None:
    orders = fake_jobs.declare("orders")
    elsewhere = {"application": "/opt/x.py", "checkpoint": "s3://a/b", "repository": "s3://a/c"}
    with DAG("fake_declared", schedule=None) as dag:
        StartStreamingJobOperator(
            task_id="start", job="orders", declaration=elsewhere, application_args=["--day", "{{ ds }}"]
        )
    assert task_states(run_dag(dag)) == {"start": "success"}
    assert orders.application_args[0] == "--day" and orders.application_args[1].startswith("20")


def test_no_connection_of_a_dag_has_to_be_there(fake_jobs: FakeJobs) -> None:
    orders = fake_jobs.declare("orders")
    where: Any = {"job": "orders", "streambank_conn_id": "prod_lake"}
    with DAG("fake_connection", schedule=None) as dag:
        start = StartStreamingJobOperator(task_id="start", **where)
        later = BatchCommittedSensor(
            task_id="later", after_batch=0, deferrable=True, poke_interval=0.1, timeout=60, **where
        )
        start >> later
    assert set(task_states(run_dag(dag)).values()) == {"success"}

    hook = StreambankHook("prod_lake")
    taken = hook.savepoints.take("orders")
    assert [one.savepoint for one in orders.savepoints] == [taken.savepoint]
    assert hook.get_conn().store.uri == orders.job.repository


def test_variables_of_airflow_count_in_a_declaration(
    fake_jobs: FakeJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_FAKE_CLOSURE", "minimal")
    orders = fake_jobs.declare("orders", savepoint={"closure": "${var:fake_closure}"})
    assert orders.job.savepoint.closure == "minimal"
    assert StreambankHook().declared.job("orders").savepoint.closure == "minimal"


def test_a_field_may_be_none_a_path_or_a_length_of_time(fake_jobs: FakeJobs) -> None:
    orders = fake_jobs.declare(
        "orders", time_zone=None, working_dir=Path("/srv"), stop={"force_after": timedelta(seconds=3)}
    )
    assert (orders.job.time_zone, orders.job.working_dir) == (None, "/srv")
    assert orders.job.stop.force_after_s == 3


def test_a_test_may_remove_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMBANK_JOBS", "/mine.toml")
    with FakeJobs(tmp_path):
        del os.environ["STREAMBANK_JOBS"]
    assert os.environ["STREAMBANK_JOBS"] == "/mine.toml"


def test_nothing_is_left_when_the_context_ends(tmp_path: Path) -> None:
    with FakeJobs(tmp_path / "jobs") as jobs:
        jobs.declare("orders").start()
        assert os.environ["STREAMBANK_JOBS"] == str(jobs.jobs_file)
        assert [one for one, said in own_processes("--launch") if str(tmp_path) in " ".join(said)]
    assert not [one for one, said in own_processes("--launch") if str(tmp_path) in " ".join(said)]
    assert "STREAMBANK_JOBS" not in os.environ
    with pytest.raises(KeyError, match=r"no job clicks .* \['orders'\]"):
        jobs["clicks"]


def test_what_needs_spark_says_so(fake_jobs: FakeJobs) -> None:
    done = subprocess.run(
        [fake_jobs.directory / "spark/bin/spark-submit", "--conf", "a=b", "/opt/rewrite_state.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "a fake job has no Spark, which /opt/rewrite_state.py needs" in done.stderr


def test_what_a_driver_is_told_is_what_it_knows(fake_jobs: FakeJobs) -> None:
    orders = fake_jobs.declare("orders")
    orders.advance(NOON)
    orders.takes(1.0)
    orders.has_state(5)
    orders.cannot_start("why")
    orders.dies(1)
    orders.hangs(2)
    orders.differs()
    said = json.loads((fake_jobs.told / "orders.json").read_text())
    assert set(said) == {one.name for one in fields(Told)} - {"batches"}


def test_neither_the_fake_nor_its_driver_loads_spark() -> None:
    code = (
        "import sys, streambank_airflow.testing, streambank_spark.stand_in.driver\n"
        "print(sorted({'pyspark', 'py4j', 'pytest'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "[]"
