"""From `streaming_jobs.toml` to DAGs, for each job.

`<job>.run`, `.stop`, `.savepoint`, `.restore`, `.sla`, `.compact` and `.rescale`.

A DAG file needs two lines:

```python
from streambank_airflow.dags.jobs import build_dags

globals().update(build_dags("/opt/airflow/dags/streaming_jobs.toml"))
```

Airflow's DAG processor imports this again and again, so it imports neither pyspark nor boto3 nor the Spark
provider.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streambank.core.errors import InputError
from streambank.declaration.declaration import Job, load_jobs
from streambank_airflow.dags import (
    compact_dag,
    rescale_dag,
    restore_dag,
    run_dag,
    savepoint_dag,
    sla_dag,
    stop_dag,
)
from streambank_airflow.dags.stagger import unshifted_alone

if TYPE_CHECKING:
    from airflow.sdk import DAG

BUILDERS: tuple[Callable[[Job, str], DAG], ...] = (
    run_dag,
    stop_dag,
    savepoint_dag,
    restore_dag,
    sla_dag,
    compact_dag,
    rescale_dag,
)
"""What is built for each job, in the order in which the lists show it."""


def build_dags(jobs_file: str | Path) -> dict[str, DAG]:
    """The DAGs of every job that a file declares.

    Args:
        jobs_file: The declaration, docs/reference/jobs.md.

    Returns:
        The DAGs by the names under which a DAG file should publish them: their ids.

    Raises:
        InputError: The file declares something wrong; the message names the line and the field, and Airflow
            shows it as the import error of the DAG file.
    """
    path = Path(jobs_file).expanduser().absolute()
    try:
        declared = load_jobs(path)
    except InputError as error:
        # Only this line reaches the import error's page as a whole, so the way out has to be part of it.
        raise InputError(f"{error.message} {error.hint}".strip(), code=error.code, hint=error.hint) from None
    jobs = [unshifted_alone(job, declared.jobs.values()) for job in declared.jobs.values()]
    return {dag.dag_id: dag for job in jobs for dag in _dags_of(job, str(path))}


def _dags_of(job: Job, jobs_file: str) -> Iterator[DAG]:
    for build in BUILDERS:
        yield build(job, jobs_file)
