"""What is kept for the page, as the API server reads it from Airflow's database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from airflow.models import Variable
from airflow.models.asset import AssetActive, AssetModel
from sqlalchemy import and_, select

from streambank.core.json_text import loads
from streambank_airflow.airflow_versions import keeps_in_assets
from streambank_airflow.page.names import PAGES, page_name
from streambank_airflow.page.store import LINE, variable_key

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session


class Rows(Protocol):
    """Reads what is kept."""

    def lines(self, session: Session, job: str | None = None, key: str = LINE) -> dict[str, str | None]:
        """The line of each job, or of one: the text of its JSON; None where none was kept yet.

        Args:
            key: Of another value than the line.
        """

    def read(self, session: Session, job: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """Values by keys; what is not there, or no JSON, is missing."""


class AssetRows:
    """Reads the state stores of the page assets that are active; one query each."""

    def lines(self, session: Session, job: str | None = None, key: str = LINE) -> dict[str, str | None]:
        from airflow.models.asset_state_store import AssetStateStoreModel as Kept

        kept = and_(Kept.asset_id == AssetModel.id, Kept.key == key)
        wanted = select(AssetModel.name, AssetModel.uri, Kept.value).join(*_active()).outerjoin(Kept, kept)
        found: dict[str, str | None] = {}
        for name, uri, value in session.execute(wanted.where(is_page(job))):
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
    """Reads Variables; jobs of which none is kept are known by their assets alone."""

    def lines(self, session: Session, job: str | None = None, key: str = LINE) -> dict[str, str | None]:
        wanted = select(Variable)
        if job is None:
            wanted = wanted.where(Variable.key.like(variable_key("%", key)))
        else:
            wanted = wanted.where(Variable.key == variable_key(job, key))
        named = session.scalars(select(AssetModel.uri).join(*_active()).where(is_page(job)))
        found: dict[str, str | None] = dict.fromkeys(uri.removeprefix(PAGES) for uri in named)
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


def is_page(job: str | None) -> ColumnElement[bool]:
    """Of assets those of pages, or that of one job."""
    if job is None:
        return AssetModel.uri.startswith(PAGES, autoescape=True)
    return AssetModel.uri == f"{PAGES}{job}"


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
