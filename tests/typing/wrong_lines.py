"""Lines of a DAG that are each wrong: where mypy --strict does not say so, `make lint` fails."""

from __future__ import annotations

from streambank_airflow.operators import (
    CheckSlaOperator,
    CreateSavepointOperator,
    ExpireSavepointsOperator,
    RestoreSavepointOperator,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
    UpgradeStreamingJobOperator,
    VerifySavepointOperator,
)
from streambank_airflow.sensors.job import BatchCommittedSensor, StreamingJobStatusSensor
from streambank_airflow.sensors.sla import SlaSensor
from streambank_airflow.sensors.watermark import WatermarkSensor


def wrong() -> None:
    StartStreamingJobOperator(task_id="a")  # type: ignore[call-arg]  # no job
    StartStreamingJobOperator(task_id="b", job=3)  # type: ignore[arg-type]
    StartStreamingJobOperator(task_id="c", job="a", jobfile="/j")  # type: ignore[call-arg]
    StartStreamingJobOperator(task_id="d", job="a", if_stopped="ignore")  # type: ignore[arg-type]
    StopStreamingJobOperator(task_id="e", job="a", if_running="kill")  # type: ignore[arg-type]
    StopStreamingJobOperator(task_id="f", job="a", force_after_s=["60s"])  # type: ignore[arg-type]
    VerifySavepointOperator(task_id="g", job="a", level="ful")  # type: ignore[arg-type]
    CreateSavepointOperator(task_id="h", job="a", closure="save")  # type: ignore[arg-type]
    RestoreSavepointOperator(task_id="i", job="a", sink="roll-back")  # type: ignore[arg-type]
    RestoreSavepointOperator(task_id="j", job="a", savepoint=41)  # type: ignore[arg-type]
    ExpireSavepointsOperator(task_id="k", job="a", keep_last=[3])  # type: ignore[arg-type]
    UpgradeStreamingJobOperator(task_id="l", job="a", compare=True)  # type: ignore[arg-type]
    CheckSlaOperator(task_id="m", job="a", on_breach="ignore")  # type: ignore[arg-type]
    StreamingJobStatusSensor(task_id="n", job="a", states=1)  # type: ignore[arg-type]
    BatchCommittedSensor(task_id="o", job="a", after_batch=["7"])  # type: ignore[arg-type]
    SlaSensor(task_id="p", job="a", until="healed")  # type: ignore[arg-type]
    WatermarkSensor(task_id="q", job="a")  # type: ignore[call-arg]  # no moment
