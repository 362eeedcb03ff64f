"""`<job>.sla`: judge what the job promises, tell what is news, and say what will hurt before it does."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.core.verb_options import SlaOptions
from streambank.declaration.declaration import Job
from streambank_airflow.dags.common import DagFile
from streambank_airflow.dags.forms import daily
from streambank_airflow.dags.forms.fields import answers_of
from streambank_airflow.dags.stagger import staggered
from streambank_airflow.operators.doctor import DiagnoseStreamingJobOperator
from streambank_airflow.operators.sla import CheckSlaOperator

SPREAD_S = 600.0
"""Over how much time jobs are judged that declare no schedule."""


def sla_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.sla`: two tasks, of which neither waits for the other or hides its answer."""
    dag = file.dag(
        job,
        "sla",
        summary=(
            "Judges the job's objectives. The notifiers declared in `notify` get one alert when an objective "
            "breaks and one when it is resolved, not one for each run. Beside it, `doctor` looks for "
            "problems ahead, and fails for errors only."
        ),
        params=daily.sla_form(),
        schedule=_schedule(job),
    )
    with dag:
        CheckSlaOperator(
            task_id="check",
            **answers_of(SlaOptions),
            **file.job_args(job),
        )
        DiagnoseStreamingJobOperator(task_id="doctor", only_if="{{ params.doctor }}", **file.job_args(job))
    return dag


def _schedule(job: Job) -> str | None:
    """When it judges: where nothing is declared, each job at minutes of its own."""
    if job.sla.schedule is None or not job.sla.spread:
        return job.sla.schedule
    return staggered(job.sla.schedule, job.name, SPREAD_S)
