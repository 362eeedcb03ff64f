"""How the DAGs that `build_dags` makes are called and tagged: what tells them from those of people."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from streambank_airflow.configuration import TAG

VERBS = (
    "run",
    "stop",
    "savepoint",
    "restore",
    "drill",
    "upgrade",
    "sla",
    "compact",
    "rescale",
    "transform",
    "bootstrap",
    "failover",
)
"""The DAGs of a job by their verbs, in the order of `dags.jobs.BUILDERS`, which is too much to load here."""
REFRESH = "refresh"
"""The first part of the verbs that come after them: one DAG for each copy of the job's state."""
MAINTENANCE = "maintenance"
"""What tags the one DAG that is of no job, whose id a jobs file may choose."""


def owners(dag_id: str) -> Iterator[str]:
    """Names of jobs whose DAG one may be by its name, the longest first: a job's name may have dots in it."""
    names = dag_id.split(".")
    for end in range(len(names) - 1, 0, -1):
        if names[end] == REFRESH or names[end:] in ([verb] for verb in VERBS):
            yield ".".join(names[:end])


def is_tagged(dag_id: str, tags: Collection[str]) -> bool:
    """Whether a DAG has the tags of `build_dags`: people tag DAGs of their own with `streambank`, too.

    `page.rights.is_built` asks the same of Airflow's database.
    """
    return TAG in tags and (MAINTENANCE in tags or any(job in tags for job in owners(dag_id)))
