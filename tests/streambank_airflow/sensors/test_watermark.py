from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG

from streambank.control.processes import this_process
from streambank.control.progress import ProgressWriter
from streambank.storage import open_store
from streambank_airflow.airflow_versions import CronDataIntervalTimetable
from streambank_airflow.sensors.watermark import WatermarkSensor
from streambank_airflow.watch.event_time import as_moment, to_epoch_ms
from tests.support.airflow_face.metadata_db import run_dag, task_states, xcom
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.managed_job import Managed

FIVE_SECONDS = "1970-01-01T00:00:05Z"  # batch 5 of tests/support/checkpoint/live_checkpoint.py runs with it


def dag_of(schedule: Any = None, **arguments: Any) -> DAG:
    with DAG("one_watermark", schedule=schedule, start_date=datetime(1970, 1, 1, tzinfo=UTC)) as dag:
        WatermarkSensor(task_id="task", **{"job": "flights", "poke_interval": 0.1, **arguments})
    return dag


@pytest.mark.parametrize("deferrable", [pytest.param(False, marks=pytest.mark.storm), True])
def test_a_moment_of_event_time_is_waited_for(
    airflow_database: None, managed: Managed, deferrable: bool
) -> None:
    managed.start()

    run = run_dag(
        dag_of(jobs_file=str(managed.jobs_file), moment=FIVE_SECONDS, deferrable=deferrable, timeout=60)
    )

    seen = xcom(run, "task")
    assert (seen["state"], seen["moment"]) == ("running", "1970-01-01T00:00:05+00:00")
    assert seen["batch"] >= 5
    assert seen["watermark"] >= "1970-01-01T00:00:05.000Z"
    assert not [value for value in seen.values() if isinstance(value, dict | list)]


def test_a_data_interval_is_waited_for_by_the_checkpoint_of_an_undeclared_query(
    airflow_database: None, tmp_path: Path
) -> None:
    LiveCheckpoint(open_store(str(tmp_path))).run(70)
    minutes = CronDataIntervalTimetable("* * * * *", timezone="UTC")
    dag = dag_of(minutes, job="orders", checkpoint=str(tmp_path), moment="{{ data_interval_end }}")

    first = run_dag(dag, logical_date=datetime(1970, 1, 1, 0, 1, tzinfo=UTC))

    assert xcom(first, "task") == {
        "job": "orders",
        "state": "unmanaged",
        "why": "",
        "desired": None,
        "operation": None,
        "epoch": None,
        "batch": 69,
        "moment": "1970-01-01T00:01:00+00:00",
        "watermark": "1970-01-01T00:01:09.000Z",
    }


def test_a_moment_that_does_not_come_ends_with_the_sensors_time(
    airflow_database: None, tmp_path: Path
) -> None:
    LiveCheckpoint(open_store(str(tmp_path))).run(5)

    run = run_dag(dag_of(checkpoint=str(tmp_path), moment=FIVE_SECONDS, timeout=0.3))

    assert task_states(run) == {"task": "failed"}


def test_a_query_without_a_watermark_is_not_waited_for(
    airflow_database: None, managed: Managed, capfd: pytest.CaptureFixture[str]
) -> None:
    LiveCheckpoint(open_store(str(managed.checkpoint))).run(1)
    managed.control.lease.acquire([this_process("python")])
    writer = ProgressWriter(managed.control.store, None, epoch=1)
    writer.add({"runId": "r", "batchId": 0, "durationMs": {"addBatch": 1}})
    writer.flush()

    run = run_dag(dag_of(jobs_file=str(managed.jobs_file), moment=FIVE_SECONDS, retries=3))

    assert task_states(run) == {"task": "failed"}
    assert "has no watermark" in capfd.readouterr().out


def test_a_run_without_a_data_interval_says_what_is_missing(
    airflow_database: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dag = dag_of(checkpoint=str(tmp_path), moment="{{ dag_run.data_interval_end }}", retries=3)

    run = run_dag(dag, logical_date=None)

    assert task_states(run) == {"task": "failed"}
    assert "may have no data interval" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("value", "hour"),
    [
        ("2013-01-02T03:00:00Z", 3),
        ("2013-01-02 03:00:00+00:00", 3),
        ("2013-01-02T03:00:00-05:00", 8),
        (pendulum.datetime(2013, 1, 2, 3, tz="Europe/Berlin"), 2),
    ],
)
def test_a_moment_may_come_in_any_zone(value: Any, hour: int) -> None:
    assert as_moment(value, "moment") == datetime(2013, 1, 2, hour, tzinfo=UTC)


def test_moments_before_the_epoch_are_rounded_up_as_well() -> None:
    before = datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1500)

    assert to_epoch_ms(before) == -1
