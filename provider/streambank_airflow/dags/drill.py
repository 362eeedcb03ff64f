"""`<job>.drill`: rehearse a restore on a copy, beside the running job, on a schedule and by hand."""

from __future__ import annotations

from airflow.sdk import DAG

from streambank.core.verb_options import DrillOptions
from streambank.declaration.declaration import Job
from streambank_airflow.choices import drill_repositories
from streambank_airflow.dags.common import DagFile
from streambank_airflow.dags.forms import recovery
from streambank_airflow.dags.forms.fields import answers_of
from streambank_airflow.dags.stagger import SHIFTED, staggered
from streambank_airflow.operators.drill import RunDrillOperator

SPREAD_S = 3600.0
"""Over how much time jobs are drilled that declare the same schedule: each drill is a Spark application."""


def drill_dag(job: Job, file: DagFile) -> DAG:
    """Build `<job>.drill`.

    A scheduled run does what the job declares. The form asks for a savepoint and where it comes from, and for
    no place to write to: the copy is always written where the job declares.
    """
    queries = [query for query in job.query_names if query is not None]
    declared, schedule = job.drill.schedule, job.drill.schedule
    if declared is not None and job.drill.spread:
        schedule = staggered(declared, job.name, SPREAD_S)
    dag = file.dag(
        job,
        "drill",
        summary=(
            "Rehearses a restore with the job's own application, on a copy that is removed afterwards, while "
            "the job runs on. Reports whether it worked, how long it took (RTO) and how old the savepoint "
            "was (RPO)." + (f" {SHIFTED.format(declared, schedule)}" if schedule != declared else "")
        ),
        params=recovery.drill_form(queries, job.drill, drill_repositories(job)),
        schedule=schedule,
    )
    with dag:
        RunDrillOperator(
            task_id="drill",
            **answers_of(DrillOptions),
            from_form=True,
            **file.task_args(job),
        )
    return dag
