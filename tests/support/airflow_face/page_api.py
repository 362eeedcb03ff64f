"""Airflow's own API server in this process, with the page's plugin, asked as one user or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import pytest

from streambank_airflow.dags.jobs import build_dags
from streambank_airflow.page.store import PageStore
from tests.support.airflow_face.metadata_db import write_dags
from tests.support.airflow_face.page_values import DatabaseValues
from tests.support.jobs.declared import write_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from httpx import Response

ON = {"AIRFLOW__STREAMBANK__PAGE": "True"}
"""Settings with which tasks keep the page of their jobs, which they do not in other tests."""


@dataclass(frozen=True)
class PageApi:
    app: FastAPI

    def client(self, role: str | None = None) -> TestClient:
        """Asks as a user of the simple auth manager with this role; as an anonymous without one."""
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
        from fastapi.testclient import TestClient

        headers = {}
        if role is not None:
            user = SimpleAuthManagerUser(username=role, role=role)
            headers["Authorization"] = f"Bearer {get_auth_manager().generate_jwt(user)}"
        return TestClient(self.app, headers=headers, raise_server_exceptions=False)

    def get(self, path: str, role: str | None = "viewer", **headers: str) -> Response:
        answer: Response = self.client(role).get(f"/streambank/{path}", headers=headers)
        return answer


@pytest.fixture(scope="session")
def page_api(airflow_database: None) -> Iterator[PageApi]:
    """Airflow's application, made once; its plugins are those that are installed."""
    from airflow import plugins_manager
    from airflow.api_fastapi.app import create_app

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", token_hex(64))
        for name, value in ON.items():
            patch.setenv(name, value)
        for name in ("_get_plugins", "get_fastapi_plugins", "_get_ui_plugins"):
            forget: Callable[[], None] = getattr(
                getattr(plugins_manager, name, None), "cache_clear", lambda: None
            )
            forget()
        app = create_app(apps="core")
        for name in ON:
            patch.setenv(name, "False")
        yield PageApi(app)


@pytest.fixture
def page_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks and watchers keep pages, and DAGs name the assets of pages."""
    for name, value in ON.items():
        monkeypatch.setenv(name, value)
    yield


def write_job(folder: Path, name: str, *, only: tuple[str, ...] | None = None, more: str = "") -> None:
    """Write the DAGs of a declared job to Airflow's database, or those of `only`; `more` declares more."""
    folder.mkdir(parents=True, exist_ok=True)
    write_dags(*build_dags(write_jobs(folder, name=name, more=more), only=only).values())


def line_of(job: str, **more: Any) -> dict[str, Any]:
    parts = {"status": {"at": "2026-11-27T22:00:00.000Z", "digest": "1"}}
    return {"format": 1, "job": job, "at": "2026-11-27T22:00:00.000Z", "parts": parts, **more}


def keep_line(job: str, parts: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Keep a snapshot without a task."""
    line = line_of(job, **more)
    PageStore(DatabaseValues(job)).keep(line, parts or {}, None)
    return line
