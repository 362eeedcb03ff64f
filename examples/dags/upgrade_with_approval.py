"""Upgrade the job `flights` to what its file declares now, after a person has seen what would change.

Trigger it after a deployment. The upgrade rehearses the new code on a copy while the old code runs on, and
goes back by itself if the new one does not get on.

What is approved is that the job is upgraded, not what was shown: if its file or its code changes before the
answer, it is upgraded to what is declared then. Deploy nothing while a question waits.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG

from streambank_airflow.operators import UpgradeStreamingJobOperator

JOB = "flights"

with DAG("upgrade_with_approval", schedule=None, tags={"streambank", "example"}, doc_md=__doc__):
    plan = UpgradeStreamingJobOperator(task_id="plan", job=JOB, plan_only=True)
    approve = ApprovalOperator(
        task_id="approve",
        subject=f"Upgrade {JOB}?",
        body="{{ ti.xcom_pull(task_ids='plan', key='report_markdown') }}",
        response_timeout=timedelta(hours=8),
        defaults="Reject",  # silence is no consent
        retries=2,  # Airflow 3.3 may lose an answer that comes at once: another try asks again
        retry_delay=timedelta(seconds=5),
    )
    upgrade = UpgradeStreamingJobOperator(task_id="upgrade", job=JOB, watch_s=600, note="approved in Airflow")

    plan >> approve >> upgrade
