"""What is kept for the page, as the API server reads it from Airflow's database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from airflow.models import Variable
from airflow.models.asset import AssetActive, AssetModel
from airflow.models.dag import DagTag
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import aliased

from streambank.core.json_text import loads
from streambank_airflow.airflow_versions import keeps_in_assets
from streambank_airflow.configuration import TAG
from streambank_airflow.page.names import PAGES, page_name
from streambank_airflow.page.rights import VERBS
from streambank_airflow.page.store import LINE, variable_key

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class Rows(Protocol):
    """Reads what is kept."""

    def lines(self, session: Session, job: str | None = None) -> dict[str, str | None]:
        """The line of each job, or of one: the text of its JSON; None where none was kept yet."""

    def read(self, session: Session, job: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """Values by keys; what is not there, or no JSON, is missing."""


class AssetRows:
    """Reads the state stores of the page assets that are active; one query each."""

    def lines(self, session: Session, job: str | None = None) -> dict[str, str | None]:
        from airflow.models.asset_state_store import AssetStateStoreModel as Kept

        kept = and_(Kept.asset_id == AssetModel.id, Kept.key == LINE)
        wanted = select(AssetModel.name, AssetModel.uri, Kept.value).join(*_active()).outerjoin(Kept, kept)
        if job is None:
            wanted = wanted.where(AssetModel.uri.startswith(PAGES, autoescape=True))
        else:
            wanted = wanted.where(AssetModel.uri == f"{PAGES}{job}")
        found: dict[str, str | None] = {}
        for name, uri, value in session.execute(wanted):
            owner = str(uri).removeprefix(PAGES)
            # An asset of this URI with another name is not one of ours.
            if page_name(owner) == name:
                found[owner] = value
        return found

    def read(self, session: Session, job: str, keys: Sequence[str]) -> Mapping[str, Any]:
        from airflow.models.asset_state_store import AssetStateStoreModel as Kept

        rows = session.execute(
            select(Kept.key, Kept.value)
            .join(AssetModel, AssetModel.id == Kept.asset_id)
            .join(*_active())
            .where(AssetModel.name == page_name(job), Kept.key.in_(keys))
        )
        return _read({key: value for key, value in rows})


class VariableRows:
    """Reads Variables; jobs of which none is kept are known by the tags of their DAGs."""

    def lines(self, session: Session, job: str | None = None) -> dict[str, str | None]:
        wanted = select(Variable)
        if job is None:
            wanted = wanted.where(Variable.key.like(variable_key("%", LINE)))
        else:
            wanted = wanted.where(Variable.key == variable_key(job, LINE))
        found: dict[str, str | None] = dict.fromkeys(_tagged(session, job))
        for one in session.scalars(wanted):
            found[one.key.split(":")[1]] = one.val
        return found

    def read(self, session: Session, job: str, keys: Sequence[str]) -> Mapping[str, Any]:
        names = {variable_key(job, key): key for key in keys}
        rows = session.scalars(select(Variable).where(Variable.key.in_(names)))
        return _read({names[one.key]: one.val for one in rows})


def rows() -> Rows:
    """Where this Airflow keeps it."""
    return AssetRows() if keeps_in_assets() else VariableRows()


def _tagged(session: Session, job: str | None) -> Sequence[str]:
    """Jobs that have a DAG, or of these the one, by the tags that `build_dags` gives it."""
    every, own = aliased(DagTag), aliased(DagTag)
    of_job = or_(*(own.dag_id == own.name + f".{verb}" for verb in VERBS))
    wanted = select(own.name).distinct().join(every, every.dag_id == own.dag_id)
    wanted = wanted.where(every.name == TAG, of_job)
    return session.scalars(wanted if job is None else wanted.where(own.name == job)).all()


def _active() -> tuple[Any, Any]:
    return AssetActive, and_(AssetActive.name == AssetModel.name, AssetActive.uri == AssetModel.uri)


def _read(texts: Mapping[str, str | None]) -> dict[str, Any]:
    found = {}
    for key, text in texts.items():
        try:
            found[key] = loads(text or "")
        except ValueError:
            found[key] = {}
    return found
