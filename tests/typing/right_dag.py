"""A DAG of one's own, as mypy --strict and an IDE read it: nothing here is wrong."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, task, task_group

from streambank_airflow.arguments import Jinja
from streambank_airflow.operators import (
    CheckSlaOperator,
    CreateSavepointOperator,
    ExpireSavepointsOperator,
    RestartStreamingJobOperator,
    RestoreSavepointOperator,
    RunDrillOperator,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
    UpgradeStreamingJobOperator,
    VerifySavepointOperator,
)
from streambank_airflow.sensors.job import BatchCommittedSensor, StreamingJobStatusSensor
from streambank_airflow.sensors.sla import SlaSensor
from streambank_airflow.sensors.watermark import WatermarkSensor

JOBS = Path(__file__).with_name("streaming_jobs.toml")


@task
def pick() -> str:
    return "orders"


@task_group
def per(job: str) -> None:
    CreateSavepointOperator(task_id="take", job=job, jobs_file=JOBS)


with DAG("right", schedule=None, params={"level": "full", "keep": 3}) as dag:
    start = StartStreamingJobOperator(
        task_id="start", job="orders", jobs_file=JOBS, deferrable=True, stop_on_kill=True, retries=2
    )
    take = CreateSavepointOperator(
        task_id="take", job=pick(), jobs_file=str(JOBS), name="day-{{ ds }}", pin="{{ params.pin }}"
    )
    verify = VerifySavepointOperator(
        task_id="verify",
        job="orders",
        savepoint=take.output["savepoint"],
        level=Jinja("{{ params.level }}"),
        execution_timeout=timedelta(hours=1),
    )
    report = BashOperator(task_id="report", bash_command="echo $ID", env={"ID": take.output["savepoint"]})
    committed = BatchCommittedSensor(
        task_id="committed", job="orders", after_batch=take.output["batch"], poke_interval=5, timeout=600
    )
    runs = StreamingJobStatusSensor(
        task_id="runs", job="orders", states="running", failed_states=["failed", "stopped"], mode="reschedule"
    )
    far = WatermarkSensor(task_id="far", job="orders", moment="{{ data_interval_end }}")
    later = WatermarkSensor(task_id="later", job="orders", moment=datetime(2026, 11, 1))
    kept = SlaSensor(task_id="kept", job="orders", until="kept", objectives=["watermark_lag"])
    stop = StopStreamingJobOperator(
        task_id="stop",
        job="orders",
        savepoint=True,
        force_after_s="60s",
        poll_interval_s=timedelta(seconds=2),
    )
    restart = RestartStreamingJobOperator(task_id="restart", job="orders", force_after_s=90)
    restore = RestoreSavepointOperator(
        task_id="restore", job="orders/*", savepoint=stop.output["savepoint"], sink="rollback"
    )
    expire = ExpireSavepointsOperator(
        task_id="expire", job="orders", keep_last="{{ params.keep }}", keep_within_s=timedelta(days=7)
    )
    drill = RunDrillOperator(task_id="drill", job=dag.param("job", "orders"), batches=3, timeout_s="30m")
    upgrade = UpgradeStreamingJobOperator(
        task_id="upgrade", job="orders", compare="values", args=["--day", "{{ ds }}"], conf={"a": "b"}
    )
    check = CheckSlaOperator(task_id="check", jobs=["orders", "trains"], on_breach="warn", least="breach")
    per.expand(job=["orders", "trains"])
    CreateSavepointOperator.partial(task_id="each", jobs_file=JOBS).expand(job=["orders", "trains"])

    start >> take >> [verify, committed] >> report
