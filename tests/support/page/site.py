"""Airflow's API server and UI on a port, the page's story in its database, browsers that are signed in."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from demo.pictures.chromium import Chromium, chromium
from streambank_airflow.airflow_versions import keeps_in_assets
from streambank_airflow.configuration import TAG
from streambank_airflow.page.store import LINE, PageStore, variable_key
from tests.support.airflow_face.metadata_db import pause
from tests.support.airflow_face.page_api import ON, PageApi, write_job
from tests.support.airflow_face.page_values import DatabaseValues, waiting_question
from tests.support.page import story as page_story

HOST = "127.0.0.1"
FULL = ("orders", "clicks", "flights", "ledger")
"""Jobs that have all of their DAGs; the others have a few."""
FEW = ("run", "restore", "sla")
QUESTION = "Restore clicks to the savepoint of 03:00?"


@dataclass(frozen=True)
class Site:
    """An Airflow that can be visited.

    Attributes:
        folder: For browsers' profiles.
    """

    url: str
    api: PageApi
    folder: Path

    @contextmanager
    def visit(self, role: str | None, width: int = 1440, height: int = 900) -> Iterator[Chromium]:
        """A browser of a user of the simple auth manager with this role; without one nobody is signed in."""
        token = None if role is None else self._token(role)
        with visit(self.url, self.folder, token, width, height) as page:
            yield page

    def _token(self, role: str) -> str:
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

        return str(get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=role, role=role)))

    def page(self, *parts: str) -> str:
        return "/".join((f"{self.url}/plugin/streambank", *parts))


@contextmanager
def visit(
    url: str, folder: Path, token: str | None, width: int = 1440, height: int = 900
) -> Iterator[Chromium]:
    """A browser of the user who has a token of Airflow's.

    Args:
        token: As a login leaves it; None for a visitor who is not signed in.
    """
    with chromium(folder / f"profile-{time.monotonic_ns()}", width, height) as page:
        if token is not None:
            page.call("Network.setCookie", name="_token", value=token, url=url)
        yield page


@pytest.fixture(scope="session")
def site(page_api: PageApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """That Airflow, until the tests have ended."""
    with serve(page_api, tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture(scope="module")
def jobs(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """That Airflow with the jobs of the story."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ON.items():
            patch.setenv(name, value)
        with story(tmp_path_factory.mktemp("story")):
            yield site


@contextmanager
def serve(api: PageApi, folder: Path) -> Iterator[Site]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(api.app, host=HOST, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, name="page-server", daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive() and time.monotonic() < deadline, "the API server does not start"
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield Site(f"http://{HOST}:{port}", api, folder)
    server.should_exit = True
    thread.join(30)


@contextmanager
def story(folder: Path) -> Iterator[None]:
    """The jobs of the story: their DAGs, what is kept of them, and one question that waits."""
    for job, line in page_story.jobs().items():
        queries = line["queries"]
        more = f"queries = {queries!r}" if len(queries) > 1 else ""
        write_job(folder / job, job, only=None if job in FULL else FEW, more=more)
        for verb in FEW:
            pause(f"{job}.{verb}", job == "flights" and verb == "run")
        keep(job, line, page_story.broken_parts() if job == "lake" else page_story.parts(queries))
    write_job(folder / "newcomer", "newcomer", only=FEW)
    with waiting_question("clicks.restore", "approve", QUESTION):
        yield


def no_errors(page: Chromium) -> None:
    """Nothing of the page's own has failed."""
    assert not [one for one in page.errors if "streambank" in one], page.errors


def seen_in_list(page: Chromium, job: str, label: str) -> str:
    row = f".sb-row:has(.sb-job-link[href$='/{job}'])"
    return str(page.js(f"document.querySelector(`{row} [data-label='{label}']`).innerText")).strip()


def keep(job: str, line: dict[str, Any], parts: dict[str, Any]) -> None:
    """Keep a snapshot as a task does."""
    known = {
        name: {"at": part["at"], "digest": f"{hash(json.dumps(part)):x}"} for name, part in parts.items()
    }
    PageStore(DatabaseValues(job)).keep({**line, "parts": known}, parts, None)


@contextmanager
def many(count: int) -> Iterator[Sequence[str]]:
    """So many more jobs, each with `.run` and a line, as Airflow's database has them."""
    from airflow.models.dag import DagModel, DagTag
    from airflow.utils.session import create_session
    from sqlalchemy import delete, insert, select

    lines = {
        f"job-{number:04d}": page_story.line(f"job-{number:04d}", state_bytes=number * 10**6)
        for number in range(count)
    }
    with create_session() as session:
        bundle = session.scalars(select(DagModel.bundle_name)).first()
        fixed = {
            "bundle_name": bundle,
            "is_stale": False,
            "is_paused": False,
            "max_active_tasks": 16,
            "max_consecutive_failed_dag_runs": 0,
            "has_task_concurrency_limits": False,
        }
        session.execute(insert(DagModel), [{"dag_id": f"{job}.run", **fixed} for job in lines])
        tags = [{"dag_id": f"{job}.run", "name": name} for job in lines for name in (TAG, job)]
        session.execute(insert(DagTag), tags)
    with _in_assets(lines) if keeps_in_assets() else _in_variables(lines):
        yield [*lines]
    with create_session() as session:
        for kind in (DagTag, DagModel):
            session.execute(delete(kind).where(kind.dag_id.in_([f"{job}.run" for job in lines])))


@contextmanager
def _in_variables(lines: Mapping[str, dict[str, Any]]) -> Iterator[None]:
    from airflow.models import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    keys = {job: variable_key(job, LINE) for job in lines}
    made: Callable[..., Variable] = Variable
    with create_session() as session:
        session.add_all(made(key=keys[job], val=json.dumps(line)) for job, line in lines.items())
    yield
    with create_session() as session:
        session.execute(delete(Variable).where(Variable.key.in_(keys.values())))


@contextmanager
def _in_assets(lines: Mapping[str, dict[str, Any]]) -> Iterator[None]:
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete, insert, select

    from streambank_airflow.assets import page_asset

    assets = {page_asset(job).name: page_asset(job) for job in lines}
    with create_session() as session:
        rows = [
            {"name": one.name, "uri": one.uri, "group": one.group, "extra": {}} for one in assets.values()
        ]
        session.execute(insert(AssetModel), rows)
        session.execute(insert(AssetActive), [{"name": one["name"], "uri": one["uri"]} for one in rows])
        found = session.execute(select(AssetModel.name, AssetModel.id).where(AssetModel.name.in_(assets)))
        ids = {name: number for name, number in found}
        fixed = {"key": LINE, "updated_at": datetime.now(UTC)}
        session.execute(
            insert(AssetStateStoreModel),
            [
                {"asset_id": ids[page_asset(job).name], "value": json.dumps(line), **fixed}
                for job, line in lines.items()
            ],
        )
    yield
    with create_session() as session:
        session.execute(delete(AssetStateStoreModel).where(AssetStateStoreModel.asset_id.in_(ids.values())))
        session.execute(delete(AssetActive).where(AssetActive.name.in_(assets)))
        session.execute(delete(AssetModel).where(AssetModel.name.in_(assets)))
