"""DAGs that people have written: which of them work on a job, and what they do to it.

A task of ours whose DAG file names its job has the asset of the job's page as an inlet, so Airflow itself
knows the DAG, before any run. Of a job that only a run knows, since it comes from a template or is mapped,
the task leaves that at its end (keep.py), as every task does: so what a subclass of an operator does is
known then, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.models.asset import AssetModel, TaskInletAssetReference
from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.serialized_dag import SerializedDagModel as Written
from sqlalchemy import func, select
from sqlalchemy.orm import aliased

from streambank.core.json_text import loads
from streambank.core.units import utc_now
from streambank_airflow.dag_names import REFRESH, VERBS
from streambank_airflow.hints import WORKS
from streambank_airflow.page.names import PAGES
from streambank_airflow.page.rights import JobDag, Rights, dags_there, first_dags, is_built
from streambank_airflow.page.rows import is_page, rows
from streambank_airflow.page.store import DAGS

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.orm import Session

_read: dict[str, tuple[str, dict[str, set[str]]]] = {}
"""Of DAGs that were read: the hash of what Airflow has written of it, and what it does."""
SEEN_FOR = timedelta(days=100)
"""How long what a task has left counts: a DAG may have lost that task since."""


def seen_jobs(rights: Rights, jobs: Collection[str], own: Mapping[str, list[JobDag]]) -> dict[str, JobDag]:
    """The jobs that the user sees, each with the DAG by which they do."""
    built = first_dags(rights.session, jobs)
    by = {job: [built[job]] if job in built else own.get(job, []) for job in sorted(jobs)}
    readable = rights.readable({dag.dag_id for dags in by.values() for dag in dags})
    seen = {job: next((dag for dag in dags if dag.dag_id in readable), None) for job, dags in by.items()}
    return {job: dag for job, dag in seen.items() if dag is not None}


def own_dags(session: Session, of: str | None = None) -> dict[str, list[JobDag]]:
    """The DAGs that people have written for each job, or `of` one, with what each does to it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for dag_id, works in _named(session, of).items():
        for uri, verbs in works.items():
            found[uri.removeprefix(PAGES)][dag_id] |= verbs
    for job, text in rows().lines(session, of, DAGS).items():
        for dag_id, left in _left(text):
            found[job][dag_id] |= {*left}
    known = {dag_id: ("", "") for dags in found.values() for dag_id in dags}
    there = {one.dag_id: one for one in dags_there(session, known, own=True)}
    return {
        job: [replace(there[one], job=job, verbs=_ordered(dags[one])) for one in sorted(dags) if one in there]
        for job, dags in found.items()
    }


def _ordered(verbs: set[str]) -> tuple[str, ...]:
    return tuple(verb for verb in (*VERBS, REFRESH) if verb in verbs)


def _named(session: Session, of: str | None) -> dict[str, dict[str, set[str]]]:
    """DAGs whose files name jobs, or one job, as Airflow has written them last, and what they do.

    The references that it keeps are only where to look: it leaves those of a file without any asset as they
    were. What a DAG does is read once for each hash of it.
    """
    naming = select(TaskInletAssetReference.dag_id).join(
        AssetModel, AssetModel.id == TaskInletAssetReference.asset_id
    )
    naming = naming.join(DagModel, DagModel.dag_id == TaskInletAssetReference.dag_id)
    naming = naming.where(is_page(of), ~is_built())
    other = aliased(Written)
    newest = select(func.max(DagVersion.version_number)).join(other, other.dag_version_id == DagVersion.id)
    newest = newest.where(other.dag_id == Written.dag_id)
    found = {}
    wanted = select(Written.dag_id, Written.id, Written.dag_hash).where(Written.dag_id.in_(naming))
    number = aliased(DagVersion)
    wanted = wanted.join(number, number.id == Written.dag_version_id)
    wanted = wanted.where(number.version_number == newest.correlate(Written).scalar_subquery())
    for dag_id, row_id, digest in session.execute(wanted).all():
        if _read.get(dag_id, ("",))[0] != digest:
            row = session.get(Written, row_id)
            _read[dag_id] = digest, _works(row.data if row is not None else None)
        works = _read[dag_id][1]
        found[dag_id] = works if of is None else {uri: works[uri] for uri in works if uri == f"{PAGES}{of}"}
    return found


def _works(data: Any) -> dict[str, set[str]]:
    """What a DAG does, as Airflow has written it: URI of a job's page -> verbs."""
    found: dict[str, set[str]] = defaultdict(set)
    for task in (data or {}).get("dag", {}).get("tasks", ()):
        said = task.get("__var", {})
        is_ours = str(said.get("_task_module")).startswith("streambank_airflow.")
        verbs = {WORKS[kind] for kind in (said.get("task_type"),) if is_ours and kind in WORKS}
        for inlet in said.get("inlets") or said.get("partial_kwargs", {}).get("inlets") or ():
            uri = str(inlet.get("__var", {}).get("uri")) if isinstance(inlet, dict) else ""
            if uri.startswith(PAGES):
                found[uri] |= verbs
    return dict(found)


def _left(text: str | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """DAGs whose tasks have ended within `SEEN_FOR`, and their verbs, of what such tasks have left."""
    try:
        kept = loads(text or "{}")
        oldest = (utc_now() - SEEN_FOR).date().isoformat()
        for dag_id, one in kept.items():
            if str(one["on"]) >= oldest:
                yield str(dag_id), tuple(map(str, one["verbs"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return  # what a person has written there: the next task writes it again
