"""Wait until the job `flights` has committed another batch, then go on with what reads its output.

The sensor waits in the triggerer and takes no worker slot. It fails at once if the job has failed.
"""

from __future__ import annotations

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from streambank_airflow.sensors.job import BatchCommittedSensor

with DAG("streambank_wait_for_batch", schedule=None, tags={"streambank", "example"}, doc_md=__doc__):
    committed = BatchCommittedSensor(task_id="committed", job="flights", deferrable=True)
    report = BashOperator(
        task_id="report",
        bash_command="echo batch $BATCH is committed",
        env={"BATCH": str(committed.output["batch"])},
    )
    committed >> report
