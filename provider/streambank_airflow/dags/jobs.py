"""From `streaming_jobs.toml` to DAGs, for each job.

`<job>.run`, `.stop`, `.savepoint`, `.restore`, `.drill`, `.upgrade`, `.sla`, `.compact` and `.rescale`;
`.transform` and `.bootstrap` for a job that declares them, `.failover` for a job with a standby, and
`<job>.refresh.<copy>` for each copy that a job declares.

A DAG file needs two lines:

```python
from streambank_airflow.dags.jobs import build_dags

globals().update(build_dags("/opt/airflow/dags/streaming_jobs.toml"))
```

Airflow's DAG processor imports this again and again, so it imports neither pyspark nor boto3 nor the Spark
provider.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError, StorageError, check_choice
from streambank.declaration.declaration import BrokenJob, Job
from streambank_airflow.assets import page_asset
from streambank_airflow.configuration import MISTAKE, page_is_on
from streambank_airflow.dag_names import MAINTENANCE
from streambank_airflow.dags import (
    bootstrap_dag,
    compact_dag,
    drill_dag,
    failover_dag,
    refresh_dag,
    rescale_dag,
    restore_dag,
    run_dag,
    savepoint_dag,
    sla_dag,
    stop_dag,
    transform_dag,
    upgrade_dag,
)
from streambank_airflow.dags.common import DagFile, read_for_dags
from streambank_airflow.dags.maintenance import maintenance_dag
from streambank_airflow.dags.refresh import VERB as REFRESH
from streambank_airflow.dags.stagger import unshifted_alone
from streambank_airflow.hooks.declared import folder_of_caller
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID
from streambank_airflow.markdown import cell

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from streambank.declaration.streaming_job import StreamingJob

_log = logging.getLogger(__name__)

BUILDERS: Mapping[str, Callable[[Job, DagFile], DAG]] = {
    "run": run_dag,
    "stop": stop_dag,
    "savepoint": savepoint_dag,
    "restore": restore_dag,
    "drill": drill_dag,
    "upgrade": upgrade_dag,
    "sla": sla_dag,
    "compact": compact_dag,
    "rescale": rescale_dag,
    "transform": transform_dag,
    "bootstrap": bootstrap_dag,
    "failover": failover_dag,
}
"""What is built for each job, by verb, in the order in which the lists show it."""
NEEDS: Mapping[str, Callable[[Job], object | None]] = {
    "transform": lambda job: job.changes.transform,
    "bootstrap": lambda job: job.changes.bootstrap,
    "failover": lambda job: job.standby,
}
"""What is only built for a job that declares what it is about."""
VERBS = (*BUILDERS, REFRESH)
"""What `only` may name, besides that of the repository: `refresh` is that of each copy of a job's state."""
_NAMES_PAGE = ("sla", "drill", "savepoint", "stop")
"""Which DAG of a job names the asset of its page, the first that is built."""
_AS_EVER = ("run", "sla")
"""DAGs of a job that have the same tasks whatever it declares."""


def build_dags(
    jobs_file: str | Path | None = None,
    *,
    jobs: Sequence[StreamingJob | Mapping[str, Any]] | None = None,
    default_args: Mapping[str, Any] | None = None,
    dag_args: Mapping[str, Any] | None = None,
    streambank_conn_id: str = DEFAULT_CONN_ID,
    only: Sequence[str] | None = None,
) -> dict[str, DAG]:
    """The DAGs of every job that a file declares, or that are given.

    What a job declares in `[jobs.NAME.airflow]` comes before what is given here, and that before our own
    defaults. Callbacks, tags and permissions add up.

    A mistake in one job takes no DAG of another one away. The job itself has `<job>.run` and `<job>.sla`,
    whose description is the mistake, and whose tasks fail with it.

    Args:
        jobs_file: The file that declares them, a path or a URI; a relative path is looked for beside the DAG
            file first.
        jobs: The jobs instead: each a `StreamingJob`, or a mapping with its fields.
        default_args: Arguments of all tasks, as in Airflow's `DAG(default_args=)`: `owner`, `pool`, `queue`,
            `on_failure_callback`, ...; not those on which the tasks rely (`OWN_DEFAULT_ARGS`).
        dag_args: Arguments of all DAGs: `access_control`, `tags`, `is_paused_upon_creation`,
            `on_failure_callback`, ...; not those that the declaration decides (`OWN_DAG_ARGS`).
        streambank_conn_id: The `streambank` connection of all tasks; the default one need not exist.
        only: Which DAGs to build, such as `("run", "stop")`, or `"maintenance"` for that of the
            repository; None for all.

    Returns:
        The DAGs by the names under which a DAG file should publish them: their ids.

    Raises:
        InputError: The file declares something wrong that is not in one job of several; the message names
            the line and the field, and Airflow shows it as the import error of the DAG file. Or an argument
            is one that may not be given (code `bad-option`), or `only` has something unknown (`bad-choice`).
        StorageError: The storage of the file, or Airflow for a value that is named, does not answer.
    """
    if isinstance(only, str):
        only = (only,)
    wanted = [check_choice(verb, "only", (*VERBS, MAINTENANCE)) for verb in (only or VERBS)]
    verbs = [verb for verb in wanted if verb != MAINTENANCE]
    folder = folder_of_caller(1)
    try:
        declared, file = read_for_dags(jobs_file, jobs, folder, streambank_conn_id)
        file = replace(file, default_args=default_args or {}, dag_args=dag_args or {})
        file.check(verbs)
        if not declared.jobs:
            declared.whole()
    except (InputError, StorageError) as error:
        # Only this line reaches the import error's page as a whole, so the way out has to be part of it.
        raise type(error)(_whole(error), code=error.code, hint=error.hint) from None
    apart = [unshifted_alone(job, declared.jobs.values()) for job in declared.jobs.values()]
    dags = {dag.dag_id: dag for job in apart for dag in _with_page(job, _dags_of(job, file, verbs))}
    for one in declared.broken.values():
        dags |= {dag.dag_id: dag for dag in _broken_dags(one, file, verbs)}
    # What keeps the repository must know all of its jobs.
    if declared.maintenance is not None and not declared.broken and (only is None or MAINTENANCE in only):
        dag = maintenance_dag(declared, declared.maintenance, file)
        dags[dag.dag_id] = dag
    return dags


def _broken_dags(broken: BrokenJob, file: DagFile, verbs: Sequence[str]) -> list[DAG]:
    """Those DAGs of a job whose declaration has a mistake that look alike whatever it says.

    An import error would take away all DAGs of the file, so these show it: in the list, and by runs that fail
    with it. A run of `<job>.run` that watches goes on when the mistake is gone.
    """
    said = _whole(broken.error)
    _log.error("Job %s: %s", broken.job.name, said)
    dags = _with_page(broken.job, _dags_of(broken.job, file, [one for one in verbs if one in _AS_EVER]))
    for dag in dags:
        dag.description = f"{MISTAKE} {said}"
        dag.doc_md = f"**{MISTAKE}** {cell(said)}\n\n{dag.doc_md}"
        dag.tags = {*dag.tags, "broken"}
    return dags


def _whole(error: InputError | StorageError) -> str:
    return f"{error.message} {error.hint}".strip()


def _with_page(job: Job, dags: Iterable[DAG]) -> list[DAG]:
    """The DAGs of a job, one of which names the asset of the job's page: by it the page knows the job.

    That is an inlet of its first task: the asset stays active as long as the DAG is there, and has no events.
    Airflow fails a task whose inlet is not active, so it is a DAG that nothing depends on at night, if there
    is one.
    """
    built = list(dags)
    if built and page_is_on():
        of_job = {dag.dag_id: dag for dag in built}
        named = (of_job.get(f"{job.name}.{verb}") for verb in _NAMES_PAGE)
        first = next((dag for dag in named if dag is not None), built[-1]).roots[0]
        first.inlets = [*first.inlets, page_asset(job.name)]
    return built


def _dags_of(job: Job, file: DagFile, verbs: Sequence[str]) -> Iterator[DAG]:
    for verb in verbs:
        if verb == REFRESH:
            yield from (refresh_dag(job, copy, file) for copy in job.copies.values())
            continue
        if verb in NEEDS and NEEDS[verb](job) is None:
            continue
        yield BUILDERS[verb](job, file)
