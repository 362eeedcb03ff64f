"""Take a savepoint of the job `flights`, verify it, and then run batch work that must not start without it.

Operators find the job through the connection `streambank_default`, or the environment variable
STREAMBANK_JOBS, which names the jobs file; `jobs_file=` does so for one task.
"""

from __future__ import annotations

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from streambank_airflow.operators import CreateSavepointOperator, VerifySavepointOperator

with DAG("streambank_savepoint_before_batch", schedule=None, tags={"streambank", "example"}, doc_md=__doc__):
    take = CreateSavepointOperator(task_id="take", job="flights", note="before the report")
    verify = VerifySavepointOperator(
        task_id="verify", job="flights", savepoint=take.output["savepoint"], level="full"
    )
    # Your batch job: SparkSubmitOperator, SQLExecuteQueryOperator, ...
    report = BashOperator(
        task_id="report",
        bash_command="echo the state before this report is savepoint $SAVEPOINT",
        env={"SAVEPOINT": take.output["savepoint"]},
    )
    verify >> report
