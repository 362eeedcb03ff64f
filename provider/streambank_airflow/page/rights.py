"""Who may see a job, and what a user may do: Airflow's rights to the job's DAGs, by its auth manager.

A user sees a job when they may read the first of its DAGs that exist, in the order of `VERBS`: `<job>.run`
where that is built. A job that has none of `build_dags` is seen by those who may read one of the DAGs that
people have written for it (own_dags.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.configuration import conf
from airflow.models.dag import DagModel, DagTag
from airflow.models.errors import ParseImportError
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from sqlalchemy import and_, exists, func, or_, select

from streambank.core.units import to_json_time
from streambank_airflow.configuration import MISTAKE, TAG
from streambank_airflow.dag_names import MAINTENANCE, REFRESH, VERBS

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

Method = Literal["GET", "POST", "PUT", "DELETE"]

_AT_ONCE = 5_000
"""How many names go into one query."""


@dataclass(frozen=True, slots=True)
class JobDag:
    """A DAG of a job that Airflow has.

    Attributes:
        verb: Its verb, or `refresh.<copy>`; empty for a DAG of one's own.
        broken: Whether its DAG file cannot be imported now: Airflow shows why, and runs nothing of it.
        file: Its DAG file, by its path in the bundle, as Airflow's import errors name it.
        mistake: What is wrong with the job's declaration, where only that job has a mistake; else empty.
        verbs: What a DAG of one's own does to the job, as far as that is known.
    """

    job: str
    dag_id: str
    verb: str
    name: str
    paused: bool
    broken: bool = False
    bundle: str | None = None
    file: str | None = None
    mistake: str = ""
    verbs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Approval:
    """A question that waits for a person.

    Attributes:
        map_index: Its index, or -1.
        since: Since when, ISO-8601.
        assignees: Names of those who alone may answer; empty for all who have the right.
        may_answer: Whether the user has the right to answer questions of this DAG.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    subject: str
    since: str | None
    assignees: tuple[str, ...]
    may_answer: bool = False


@dataclass(slots=True)
class Rights:
    """The rights of one user, asked of Airflow's auth manager."""

    user: BaseUser
    session: Session
    _teams: dict[str, str | None] = field(default_factory=dict)

    def readable(self, dag_ids: Collection[str]) -> set[str]:
        """Those of some DAGs that the user may read; one question for all of a team."""
        by_team: dict[str | None, set[str]] = defaultdict(set)
        self._know_teams(dag_ids)
        for dag_id in dag_ids:
            by_team[self._teams.get(dag_id)].add(dag_id)
        found: set[str] = set()
        for team, of_team in by_team.items():
            more = {} if team is None else {"team_name": team}
            found |= get_auth_manager().filter_authorized_dag_ids(
                dag_ids=of_team, user=self.user, method="GET", **more
            )
        return found

    def may(self, method: Method, dag_id: str, entity: DagAccessEntity | None = None) -> bool:
        """Whether the user may do that to a DAG, or to what belongs to it."""
        self._know_teams([dag_id])
        team = self._teams.get(dag_id)
        details = DagDetails(id=dag_id) if team is None else DagDetails(id=dag_id, team_name=team)
        return bool(
            get_auth_manager().is_authorized_dag(
                method=method, access_entity=entity, details=details, user=self.user
            )
        )

    def may_trigger(self, dag_id: str) -> bool:
        """Whether the user may trigger a DAG: the right that Airflow's own API asks for."""
        return self.may("POST", dag_id, DagAccessEntity.RUN)

    def may_read_questions(self, dag_id: str) -> bool:
        return self.may("GET", dag_id, DagAccessEntity.HITL_DETAIL)

    def may_answer(self, dag_id: str) -> bool:
        """Whether the user may answer that, where the question is not for others alone."""
        return self.may("PUT", dag_id, DagAccessEntity.HITL_DETAIL)

    def may_read_logs(self, dag_id: str) -> bool:
        return self.may("GET", dag_id, DagAccessEntity.TASK_LOGS)

    def may_read_import_errors(self) -> bool:
        """Whether Airflow has import errors at all, and the user the right to read some: it says which."""
        if self.session.scalar(select(ParseImportError.id).limit(1)) is None:
            return False
        view = AccessView.IMPORT_ERRORS
        return bool(get_auth_manager().is_authorized_view(access_view=view, user=self.user))

    def approvals(
        self, dag_ids: Collection[str] | None = None, of: Callable[[str], bool] = bool
    ) -> list[Approval]:
        """The questions that wait for a person, of DAGs whose questions the user may read; oldest first.

        Args:
            dag_ids: Of these DAGs; None for all.
            of: Whether a DAG's questions are wanted. The auth manager is asked of no others.
        """
        wanted = (
            select(
                TaskInstance.dag_id,
                TaskInstance.run_id,
                TaskInstance.task_id,
                TaskInstance.map_index,
                HITLDetail.subject,
                HITLDetail.created_at,
                HITLDetail.assignees,
            )
            .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            .where(HITLDetail.responded_at.is_(None), TaskInstance.state.in_(("deferred", "awaiting_input")))
            .order_by(HITLDetail.created_at)
        )
        if dag_ids is not None:
            wanted = wanted.where(TaskInstance.dag_id.in_(dag_ids))
        assigned: dict[Approval, set[str]] = {}
        for dag_id, run_id, task_id, map_index, subject, since, users in self.session.execute(wanted):
            names, ids = _assigned(users)
            one = Approval(dag_id, run_id, task_id, map_index, subject, _as_json_time(since), names)
            assigned[one] = ids
        found = list(assigned)
        asking = {one.dag_id for one in found if of(one.dag_id)}
        self._know_teams(asking)
        allowed = {one: self.may_answer(one) for one in asking if self.may_read_questions(one)}
        return [
            replace(one, may_answer=allowed[one.dag_id] and self._is_among(assigned[one]))
            for one in found
            if one.dag_id in allowed
        ]

    def _is_among(self, assigned: set[str]) -> bool:
        """Whether a question is for all, or the user among those whom it is for."""
        if not assigned:
            return True
        return bool(get_auth_manager().is_authorized_hitl_task(assigned_users=assigned, user=self.user))

    def _know_teams(self, dag_ids: Iterable[str]) -> None:
        """Learn the team of each DAG, where Airflow has teams."""
        if not conf.getboolean("core", "multi_team", fallback=False):
            return
        unknown = [one for one in dag_ids if one not in self._teams]
        for some in _parts(unknown):
            teams = DagModel.get_dag_id_to_team_name_mapping(list(some), session=self.session)
            self._teams |= {one: teams.get(one) for one in some}


def first_dags(session: Session, jobs: Collection[str]) -> dict[str, JobDag]:
    """The first DAG that was built for each job, by which it is decided who sees it, or none."""
    found = {
        dag.job: dag for dag in dags_there(session, {f"{job}.{VERBS[0]}": (job, VERBS[0]) for job in jobs})
    }
    rest = {f"{job}.{verb}": (job, verb) for job in jobs if job not in found for verb in VERBS[1:]}
    for dag in sorted(dags_there(session, rest), key=lambda one: VERBS.index(one.verb)):
        found.setdefault(dag.job, dag)
    return found


def dags_of(session: Session, job: str) -> list[JobDag]:
    """The DAGs of a job that Airflow has, in the order of `VERBS`, then those that refresh copies."""
    dags = dags_there(session, {f"{job}.{verb}": (job, verb) for verb in VERBS})
    prefix = f"{job}.{REFRESH}."
    copies: Collection[str] = session.scalars(
        select(DagModel.dag_id).where(DagModel.dag_id.startswith(prefix, autoescape=True))
    ).all()
    if {f"{prefix}{verb}" for verb in VERBS[:2]} <= {*copies}:
        # There is a job of that name, such as `orders.refresh`: its DAGs are not those of copies.
        copies = [one for one in copies if one.removeprefix(prefix) not in VERBS]
    refreshes = dags_there(session, {one: (job, one.removeprefix(f"{job}.")) for one in copies})
    return [
        *sorted(dags, key=lambda one: VERBS.index(one.verb)),
        *sorted(refreshes, key=lambda one: one.verb),
    ]


def is_built() -> ColumnElement[bool]:
    """Whether `build_dags` has made a DAG, by its tags: another one may have such a name, and any form.

    `dag_names.is_tagged` says the same of a DAG that a file has made.
    """
    verb = func.substr(DagModel.dag_id, func.length(DagTag.name) + 2)
    is_verb = or_(verb.in_(VERBS), verb.startswith(f"{REFRESH}.", autoescape=True))
    of_job = and_(DagModel.dag_id == DagTag.name + "." + verb, is_verb)
    tagged = exists().where(DagTag.dag_id == DagModel.dag_id, DagTag.name == TAG)
    return tagged & exists().where(DagTag.dag_id == DagModel.dag_id, or_(DagTag.name == MAINTENANCE, of_job))


def dags_there(session: Session, known: Mapping[str, tuple[str, str]], *, own: bool = False) -> list[JobDag]:
    """Those of some DAGs that a DAG file has now.

    Args:
        known: DAG -> its job and verb.
        own: Those that people have written, instead of those that `build_dags` has made.
    """
    found = []
    for some in _parts(list(known)):
        name: Any = DagModel.dag_display_name  # a column here, and a text of one DAG elsewhere
        bundle, file = DagModel.bundle_name, DagModel.relative_fileloc
        failed = select(ParseImportError.id)
        failed = failed.where(ParseImportError.bundle_name == bundle, ParseImportError.filename == file)
        # Of a file that was deleted Airflow deletes the error, and leaves `has_import_errors` as it is.
        broken = and_(DagModel.has_import_errors.is_(True), failed.exists())
        # A DAG is stale, too, while its file cannot be read; its job goes on, and so do rights to it.
        is_there = or_(DagModel.is_stale.is_(False), broken)
        wanted = select(DagModel.dag_id, name, DagModel.is_paused, broken, DagModel.description, bundle, file)
        wanted = wanted.where(DagModel.dag_id.in_(some), is_there, is_built() != own)
        for dag_id, shown, paused, is_broken, description, in_bundle, path in session.execute(wanted):
            job, verb = known[dag_id]
            before, begun, mistake = (description or "").partition(MISTAKE)
            said = mistake.strip() if begun and not before else ""
            found.append(
                JobDag(job, dag_id, verb, shown, bool(paused), bool(is_broken), in_bundle, path, said)
            )
    return found


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    yield from (names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE))


def _as_json_time(moment: datetime | None) -> str | None:
    return None if moment is None else to_json_time(moment)


def _assigned(assignees: Any) -> tuple[tuple[str, ...], set[str]]:
    """Those who may answer, as Airflow keeps them: their names, and their ids."""
    known = [one for one in assignees if isinstance(one, dict)] if isinstance(assignees, list) else []
    return tuple(str(one.get("name") or one.get("id")) for one in known), {
        str(one.get("id")) for one in known
    }
