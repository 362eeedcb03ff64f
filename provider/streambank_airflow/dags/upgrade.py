"""`<job>.upgrade`: bring a running job to what its file declares now, after a rehearsal beside it."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.declaration.declaration import Job
from streambank_airflow.dags.common import DagFile
from streambank_airflow.dags.forms import recovery
from streambank_airflow.operators.upgrade import UpgradeStreamingJobOperator


def upgrade_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.upgrade`.

    By hand only. The form takes no interpreter and no distribution of Spark: these are declared.
    """
    dag = file.dag(
        job,
        "upgrade",
        summary=(
            "Brings the running job to what is declared now. The new code is rehearsed on a copy of a fresh "
            "savepoint while the old code runs on. Then the job stops with a savepoint, and goes on with the "
            "new code. If that does not get on, the savepoint is restored, and the old code started."
        ),
        params=recovery.upgrade_form(job.drill.batches, job.upgrade.applications),
    )
    with dag:
        UpgradeStreamingJobOperator(
            task_id="upgrade",
            **{name: f"{{{{ params.get('{name}') }}}}" for name in UpgradeStreamingJobOperator.form_fields},
            from_form=True,
            **file.task_args(job),
        )
    return dag
