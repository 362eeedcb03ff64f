"""The page with an auth manager of one's own: rights to single DAGs, and teams; in a separate process.

`python -m tests.support.airflow_face.own_rights FOLDER` makes an Airflow with teams in an empty folder, asks
the page's routes and Airflow's API as each user, and prints the answers as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

from tests.support.airflow_face.fab_rights import asked, seen
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

TEAM = "payments"
JOBS = {"flights": None, "ledger": TEAM, "orders": None}
"""Jobs, and the team of each."""
USERS: dict[str, tuple[str, list[str]]] = {
    "admin": ("admin", []),
    "member": ("user", [TEAM]),
    "stranger": ("user", []),
    "flights": ("user", [TEAM]),
    "looker": ("viewer", [TEAM]),
}
"""Users: role and teams. One who is called as a job has rights to that job alone."""


class OwnAuthManager(SimpleAuthManager):
    """The simple one, with rights to single DAGs."""

    def is_authorized_dag(
        self,
        *,
        method: Any,
        user: SimpleAuthManagerUser,
        access_entity: DagAccessEntity | None = None,
        details: DagDetails | None = None,
    ) -> bool:
        dag_id = details.id if details is not None else None
        if user.username in JOBS and dag_id is not None and not dag_id.startswith(f"{user.username}."):
            return False
        return bool(
            super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
        )


def answers_of_own(folder: Path) -> dict[str, Any]:
    """What the process says, by user."""
    paths = os.pathsep.join((str(ROOT / "provider"), str(ROOT)))
    return asked(__name__, folder, {**os.environ, **settings(folder), "PYTHONPATH": paths})


def settings(folder: Path) -> dict[str, str]:
    bundles = [
        {
            "name": name,
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(folder / name)},
            **more,
        }
        for name, more in (("dags-folder", {}), (TEAM, {"team_name": TEAM}))
    ]
    return {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__API_AUTH__JWT_SECRET": token_hex(64),
        "AIRFLOW__API__SECRET_KEY": token_hex(32),
        "AIRFLOW__CORE__AUTH_MANAGER": f"{__name__}.OwnAuthManager",
        "AIRFLOW__CORE__MULTI_TEAM": "True",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__STREAMBANK__PAGE": "True",
    }


def main(folder: Path) -> dict[str, Any]:
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.models.team import Team
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session
    from fastapi.testclient import TestClient

    from streambank_airflow.dags.jobs import build_dags
    from tests.support.airflow_face.metadata_db import BUNDLE, write_dags
    from tests.support.airflow_face.page_api import keep_line
    from tests.support.jobs.declared import write_jobs

    initdb()
    with create_session() as session:
        session.add(Team(name=TEAM))
    app = create_app(apps="core")
    for job, team in JOBS.items():
        (folder / job).mkdir()
        dags = build_dags(write_jobs(folder / job, name=job))
        write_dags(*dags.values(), bundle=team or BUNDLE)
        keep_line(job, {"log": {"at": None, "error": None, "lines": []}})
    manager: Any = get_auth_manager()
    found = {}
    for name, (role, teams) in USERS.items():
        token = manager.generate_jwt(SimpleAuthManagerUser(username=name, role=role, teams=teams))
        client = TestClient(app, headers={"Authorization": f"Bearer {token}"})
        found[name] = seen(client, *JOBS)
        found[name]["read by Airflow"] = [
            job for job in JOBS if client.get(f"/api/v2/dags/{job}.run").status_code == 200
        ]
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
