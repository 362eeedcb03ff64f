"""The page with FAB's auth manager: who sees which job, and may trigger what; in a process of its own.

`python -m tests.support.airflow_face.fab_rights FOLDER` makes an Airflow in an empty folder, with two jobs
and users of several roles, asks the page's routes as each of them, and prints the answers as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from typing import Any

from tests.support.paths import ROOT
from tests.support.venvs import LOCKS, filled_venv, version_of

JOBS = """
repository = "repository"

[jobs.flights]
application = "app.py"
checkpoint = "checkpoints/flights"
[jobs.flights.airflow.access_control.payments]
DAGs = ["can_read", "can_edit"]
"DAG Runs" = ["can_create", "can_read"]
[jobs.flights.airflow.access_control.readers]
DAGs = ["can_read"]

[jobs.orders]
application = "app.py"
checkpoint = "checkpoints/orders"
"""
FAB = "airflow.providers.fab.auth_manager"
USERS = {
    "admin": "Admin",
    "op": "Op",
    "viewer": "Viewer",
    "payer": "payments",
    "reader": "readers",
    "nobody": "Public",
}
"""Names of users, and the role of each."""


def answers_with_fab(folder: Path) -> dict[str, Any]:
    """What the process says, by user."""
    place = ROOT / ".streambank" / "airflows" / f"fab-{version_of(sys.executable)}"
    python = filled_venv(place, LOCKS / "fab.lock", sys.executable)
    (packages,) = (python.parent.parent / "lib").glob("python3.*/site-packages")
    paths = (packages, ROOT / "provider", ROOT)
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder)],
        env={**os.environ, **settings(folder), "PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def settings(folder: Path) -> dict[str, str]:
    """Airflow's, by variables of the environment."""
    return {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__API_AUTH__JWT_SECRET": token_hex(64),
        "AIRFLOW__API__SECRET_KEY": token_hex(32),
        "AIRFLOW__CORE__AUTH_MANAGER": f"{FAB}.fab_auth_manager.FabAuthManager",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS": f"{FAB}.models.db.FABDBManager",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__FAB__ENABLE_PROXY_FIX": "False",
        "AIRFLOW__STREAMBANK__PAGE": "True",
    }


def main(folder: Path) -> dict[str, Any]:
    """See the module."""
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.utils.db import initdb
    from fastapi.testclient import TestClient

    from streambank_airflow.dags.jobs import build_dags
    from tests.support.airflow_face.metadata_db import write_dags
    from tests.support.airflow_face.page_api import keep_line

    (folder / "dags").mkdir()
    (folder / "app.py").write_text("", encoding="utf-8")
    (folder / "streaming_jobs.toml").write_text(JOBS, encoding="utf-8")
    initdb()
    app = create_app(apps="core")
    manager: Any = get_auth_manager()
    roles = manager.security_manager
    for role in ("payments", "readers"):
        roles.add_role(role)
        menu = roles.create_permission("can_read", "DAG Runs")
        roles.add_permission_to_role(roles.find_role(role), menu)
    users = {
        name: roles.add_user(
            name, name, name, f"{name}@example.org", roles.find_role(role), hashed_password="no"
        )
        for name, role in USERS.items()
    }
    write_dags(*build_dags(folder / "streaming_jobs.toml").values())
    for job in ("flights", "orders"):
        keep_line(job, {"log": {"at": None, "error": None, "lines": []}})
    found: dict[str, Any] = {"anonymous": TestClient(app).get("/streambank/jobs").status_code}
    for name, user in users.items():
        client = TestClient(app, headers={"Authorization": f"Bearer {manager.generate_jwt(user)}"})
        found[name] = _seen(client)
    return found


def _seen(client: Any) -> dict[str, Any]:
    listed = client.get("/streambank/jobs").json()["jobs"]
    found: dict[str, Any] = {"jobs": [one["job"] for one in listed], "status": {}, "trigger": {}, "log": {}}
    for job in ("flights", "orders"):
        answer = client.get(f"/streambank/jobs/{job}")
        found["status"][job] = answer.status_code
        found["log"][job] = client.get(f"/streambank/jobs/{job}/log").status_code
        if answer.status_code == 200:
            found["trigger"][job] = sorted({one["may"]["trigger"] for one in answer.json()["dags"]})
        asked = client.post(f"/api/v2/dags/{job}.stop/dagRuns", json={"logical_date": None})
        found["trigger"][f"{job} by Airflow"] = asked.status_code != 403
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
