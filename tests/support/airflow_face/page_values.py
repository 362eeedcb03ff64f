"""Where a job's page is kept, as tests reach it: in memory with faults, or in Airflow's database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from streambank_airflow.airflow_versions import keeps_in_assets
from streambank_airflow.assets import page_asset
from streambank_airflow.page.store import variable_key
from tests.support.airflow_face.releases import WAITS_FOR_A_PERSON


class KilledError(Exception):
    """The process that wrote is no more."""


@dataclass
class MemoryValues:
    """Values of one job, as JSON.

    Attributes:
        writes_left: After how many writes and deletions the process dies; None for never.
        before_write: Called with the key before each write.
    """

    texts: dict[str, str] = field(default_factory=dict)
    writes_left: int | None = None
    before_write: Callable[[str], None] = lambda key: None

    def get(self, key: str) -> Any:
        return json.loads(self.texts[key]) if key in self.texts else None

    def set(self, key: str, value: Any) -> None:
        self._count(key)
        self.texts[key] = json.dumps(value)

    def delete(self, key: str) -> None:
        self._count(key)
        self.texts.pop(key, None)

    def read(self, keys: Sequence[str]) -> Mapping[str, Any]:
        """As the API server reads."""
        return {key: self.get(key) for key in keys if key in self.texts}

    def _count(self, key: str) -> None:
        self.before_write(key)
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise KilledError
            self.writes_left -= 1


@dataclass(frozen=True)
class DatabaseValues:
    """Values of one job in Airflow's database, written without a task; its page asset must be active."""

    job: str

    def get(self, key: str) -> Any:
        from airflow.utils.session import create_session

        from streambank_airflow.page.rows import rows

        with create_session() as session:
            return rows().read(session, self.job, [key]).get(key)

    def set(self, key: str, value: Any) -> None:
        self.set_text(key, json.dumps(value))

    def set_text(self, key: str, text: str) -> None:
        """Write a value that need not be JSON."""
        if not keeps_in_assets():
            from airflow.models import Variable

            Variable.set(variable_key(self.job, key), text)
            return
        from airflow._shared.state import AssetScope
        from airflow.state import get_state_backend

        get_state_backend().set(AssetScope(asset_id=self._asset_id()), key, text)

    def delete(self, key: str) -> None:
        if not keeps_in_assets():
            from airflow.models import Variable

            Variable.delete(variable_key(self.job, key))
            return
        from airflow._shared.state import AssetScope
        from airflow.state import get_state_backend

        get_state_backend().delete(AssetScope(asset_id=self._asset_id()), key)

    def keys(self) -> list[str]:
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            if not keeps_in_assets():
                from airflow.models import Variable

                prefix = variable_key(self.job, "")
                found = session.scalars(select(Variable.key).where(Variable.key.startswith(prefix))).all()
                return sorted(one.removeprefix(prefix) for one in found)
            from airflow.models.asset_state_store import AssetStateStoreModel as Kept

            return sorted(session.scalars(select(Kept.key).where(Kept.asset_id == self._asset_id())))

    def _asset_id(self) -> int:
        from airflow.models.asset import AssetModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            name = page_asset(self.job).name
            return session.scalars(select(AssetModel.id).where(AssetModel.name == name)).one()


@contextmanager
def page_asset_of(job: str) -> Iterator[None]:
    """The page asset of a job, active although no DAG names it; of no account where Variables are used."""
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.utils.session import create_session

    asset = page_asset(job)
    if not keeps_in_assets():
        yield
        return
    with create_session() as session:
        session.add(AssetModel(name=asset.name, uri=asset.uri, group=asset.group, extra={}))
        session.flush()
        session.add(AssetActive(name=asset.name, uri=asset.uri))
    yield
    with create_session() as session:
        for kind in (AssetActive, AssetModel):
            session.query(kind).filter_by(name=asset.name).delete()


def ask(dag_id: str, run_id: str, task_id: str, subject: str, *assignees: str) -> None:
    """Let a task of a run wait for a person, one of those who are named."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    with create_session() as session:
        task = session.query(TaskInstance).filter_by(dag_id=dag_id, run_id=run_id, task_id=task_id).one()
        task.state = TaskInstanceState(WAITS_FOR_A_PERSON)
        users = [{"id": one, "name": one} for one in assignees]
        asked = {"options": ["Approve", "Reject"], "subject": subject, "params": {}, "assignees": users}
        session.add(HITLDetail(ti_id=task.id, **asked))


@contextmanager
def waiting_question(dag_id: str, task_id: str, subject: str, *assignees: str) -> Iterator[None]:
    """A task of a DAG that was written waits for a person, until the end of the `with`."""
    from airflow.models.dag import DagModel
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagrun import DagRun
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.sdk.timezone import utcnow
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    with create_session() as session:
        found = session.get_one(DagModel, dag_id)
        written = SerializedDagModel.get_dag(dag_id, session=session)
        version = DagVersion.get_latest_version(dag_id, session=session)
        assert found is not None and written is not None and version is not None
        run = DagRun(
            dag_id=dag_id,
            run_id=f"manual__{task_id}",
            run_type=DagRunType.MANUAL,
            run_after=utcnow(),
            state=DagRunState.RUNNING,
            triggered_by=DagRunTriggeredByType.TEST,
        )
        session.add(run)
        session.flush()
        task = TaskInstance(written.get_task(task_id), run_id=run.run_id, dag_version_id=version.id)
        task.dag_run = run
        session.add(task)
    ask(dag_id, f"manual__{task_id}", task_id, subject, *assignees)
    yield
    with create_session() as session:
        session.delete(session.query(DagRun).filter_by(dag_id=dag_id, run_id=f"manual__{task_id}").one())
