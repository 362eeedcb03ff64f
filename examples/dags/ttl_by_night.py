"""Drop keys from the state of the job `flights` that have been idle for too long, each night.

Spark keeps a key of most stateful operators for ever. The job is stopped with a savepoint, another savepoint
is made without the keys, and the job goes on from that. The old generation stays as it was until you remove
it. If a step after the stop fails, the job starts with the state that it had.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from streambank_airflow.operators import (
    RestoreSavepointOperator,
    StartStreamingJobOperator,
    StopStreamingJobOperator,
)
from streambank_airflow.operators.rewrite import CompactStateOperator

JOB = "flights"

with DAG(
    "ttl_by_night",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags={"streambank", "example"},
    doc_md=__doc__,
):
    # A setup that fails for good, as by its savepoint, lets no teardown start the job: so it is tried again.
    stop = StopStreamingJobOperator(task_id="stop", job=JOB, savepoint=True, skip_if_stopped=True, retries=3)
    compact = CompactStateOperator(
        task_id="compact",
        job=JOB,
        savepoint=stop.output["savepoint"],
        where="value.last_seen < current_timestamp() - INTERVAL 90 DAYS",  # columns of your state
        unmoved=True,  # refuse where the job has gone on since
    )
    restore = RestoreSavepointOperator(
        task_id="restore",
        job=JOB,
        savepoint=compact.output["savepoint"],
        only_if="{{ ti.xcom_pull(task_ids='compact')['savepoint'] is not none }}",  # None: nothing expired
        unmoved=True,
    )
    start = StartStreamingJobOperator(task_id="start", job=JOB, if_stopped="fail", retries=3)

    stop.as_setup() >> compact >> restore >> start.as_teardown(setups=stop)
    # A run ends as its last task does, and a teardown does not count: without this one it would be green.
    [compact, restore, start] >> EmptyOperator(task_id="ended", trigger_rule="none_failed")
