"""Let the job `flights` live at its other site for a while, and bring it back: an exercise each quarter.

The job declares a `standby`. Both ways are planned fail-overs: the job is stopped with a last savepoint, and
nothing is lost. How long each took (RTO) is in the results. `proof` waits for one more batch there; put a day
of real work in its place if you dare.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, task

from streambank_airflow.operators.failover import FailoverStreamingJobOperator
from streambank_airflow.sensors.job import BatchCommittedSensor

JOB = "flights"

with DAG(
    "disaster_exercise",
    schedule="0 9 1 */3 *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags={"streambank", "example"},
    doc_md=__doc__,
):
    there = FailoverStreamingJobOperator(task_id="there", job=JOB, to="standby", note="exercise")
    proof = BatchCommittedSensor(task_id="proof", job=JOB, poke_interval=5, timeout="10m")
    back = FailoverStreamingJobOperator(
        task_id="back",
        job=JOB,
        to="primary",
        note="the exercise is over",
        trigger_rule="all_done",  # also if the proof has failed: the exercise must not outlast the run
    )

    @task
    def report(there: Any, back: Any) -> str:
        """What the quarter's report says."""
        return f"{there['rto_s']} s there, {back['rto_s']} s back, {there['rpo_s']} s of data lost"

    there >> proof >> back
    report(there.output, back.output)
