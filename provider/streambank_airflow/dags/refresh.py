"""`<job>.refresh.<copy>`: make a copy of a job's state again, beside the running job."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.core.verb_options import RefreshOptions
from streambank.declaration.declaration import Job
from streambank.declaration.places.copies import CopyPolicy
from streambank_airflow.choices import DECLARED, refresh_repositories
from streambank_airflow.dags.common import DagFile
from streambank_airflow.dags.forms import recovery
from streambank_airflow.dags.forms.fields import answers_of
from streambank_airflow.operators.restore import RefreshCopyOperator

VERB = "refresh"


def refresh_dag(job: Job, copy: CopyPolicy, file: DagFile) -> DAG:
    """Build `<job>.refresh.<copy>`.

    The form asks for a savepoint and where it comes from, and for no place to write to: the copy is always
    where the job declares it.
    """
    dag = file.dag(
        job,
        f"{VERB}.{copy.name}",
        summary=(
            f"Makes the copy `{copy.name}` of the job's state again, from a savepoint, while the job runs "
            "on. Nothing of the job is touched. The copy in use stays until the new one is whole; if a job "
            "runs on it, the refresh is refused."
        ),
        params=recovery.refresh_form(refresh_repositories(job, copy), copy.source),
        schedule=copy.schedule,
    )
    with dag:
        RefreshCopyOperator(
            task_id="refresh",
            copy=copy.name,
            **answers_of(RefreshOptions)
            | {"repository": f"{{{{ '' if params.repository == '{DECLARED}' else params.repository }}}}"},
            from_form=True,
            **file.task_args(job),
        )
    return dag
