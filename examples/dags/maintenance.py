"""Stop the job `flights` for the upkeep of its table each Sunday, and start it again whatever came of that.

Stop and start are setup and teardown of the work. So Airflow starts the job again where the work has failed,
too, and the run then fails by the work. Clearing the work alone stops and starts the job around it again.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from streambank_airflow.operators import StartStreamingJobOperator, StopStreamingJobOperator

JOB = "flights"

with DAG(
    "maintenance",
    schedule="0 3 * * SUN",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags={"streambank", "example"},
    doc_md=__doc__,
):
    # A job that somebody has stopped stays stopped: then all of this is skipped. A setup that fails for good
    # lets no teardown run, and it may fail once the driver is gone, by its savepoint: so it is tried again.
    stop = StopStreamingJobOperator(
        task_id="stop", job=JOB, savepoint=True, skip_if_stopped=True, note="upkeep of the table", retries=3
    )
    work = BashOperator(task_id="work", bash_command="echo here your table is compacted")
    start = StartStreamingJobOperator(task_id="start", job=JOB, note="the upkeep is over", retries=3)

    stop.as_setup() >> work >> start.as_teardown(setups=stop)
    # A run ends as its last task does, and a teardown does not count: without this one it would be green.
    [work, start] >> EmptyOperator(task_id="ended")
