"""The page with FAB's auth manager: who sees which job, and may trigger what; in a separate process.

`python -m tests.support.airflow_face.fab_rights FOLDER` makes an Airflow in an empty folder, with two jobs
and users of several roles, asks the page's routes as each of them, and prints the answers as JSON. With a
second argument, a port, it serves Airflow there instead, and prints the token of each user.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from demo import ports
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
PASSWORD = "a password of tests"
"""That of each user."""
OF_ROLES = (("can_read", "DAG Runs"), ("can_read", "Plugins"), ("can_read", "website"))
"""What the roles of one job may do beside what `access_control` gives them: Airflow's UI loads plugins for
those who may read them."""


@dataclass(frozen=True)
class Served:
    """An Airflow with FAB's auth manager.

    Attributes:
        tokens: User -> what a login leaves.
    """

    url: str
    tokens: dict[str, str]


def answers_with_fab(folder: Path) -> dict[str, Any]:
    """What the process says, by user."""
    return asked(__name__, folder, _environment(folder))


def asked(module: str, folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a module prints that is run with a folder."""
    command = [sys.executable, "-m", module, str(folder)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def served_with_fab(folder: Path) -> Iterator[Served]:
    """That Airflow, served until the end of the `with`."""
    port = ports.any_free()
    url = f"http://{ports.HOST}:{port}"
    environment = {**_environment(folder), "AIRFLOW__API__BASE_URL": url}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder), str(port)],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None and process.stdin is not None
        said = next((line for line in process.stdout if line.startswith("{")), "")
        assert said, (folder / "log").read_text(encoding="utf-8")[-4000:]
        yield Served(url, json.loads(said))
        process.stdin.close()


def _environment(folder: Path) -> dict[str, str]:
    place = ROOT / ".streambank" / "airflows" / f"fab-{version_of(sys.executable)}"
    python = filled_venv(place, LOCKS / "fab.lock", sys.executable)
    (packages,) = (python.parent.parent / "lib").glob("python3.*/site-packages")
    paths = (packages, ROOT / "provider", ROOT)
    return {**os.environ, **settings(folder), "PYTHONPATH": os.pathsep.join(map(str, paths))}


def settings(folder: Path) -> dict[str, str]:
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


def made(folder: Path) -> tuple[Any, dict[str, str]]:
    """Airflow's application with the jobs and users, and the token of each user."""
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.utils.db import initdb
    from werkzeug.security import generate_password_hash

    from streambank_airflow.dags.jobs import build_dags
    from tests.support.airflow_face.metadata_db import write_dags
    from tests.support.page import story
    from tests.support.page.site import keep

    (folder / "dags").mkdir()
    (folder / "app.py").write_text("", encoding="utf-8")
    (folder / "streaming_jobs.toml").write_text(JOBS, encoding="utf-8")
    initdb()
    app = create_app(apps="core")
    manager: Any = get_auth_manager()
    roles = manager.security_manager
    for role in ("payments", "readers"):
        roles.add_role(role)
        for right in OF_ROLES:
            roles.add_permission_to_role(roles.find_role(role), roles.create_permission(*right))
    hashed = generate_password_hash(PASSWORD)
    tokens = {
        name: manager.generate_jwt(
            roles.add_user(
                name, name, name, f"{name}@example.org", roles.find_role(role), hashed_password=hashed
            )
        )
        for name, role in USERS.items()
    }
    write_dags(*build_dags(folder / "streaming_jobs.toml").values())
    for job in ("flights", "orders"):
        keep(job, story.line(job), story.parts())
    return app, tokens


def main(folder: Path) -> dict[str, Any]:
    from fastapi.testclient import TestClient

    app, tokens = made(folder)
    found: dict[str, Any] = {"anonymous": TestClient(app).get("/streambank/jobs").status_code}
    for name, token in tokens.items():
        found[name] = seen(TestClient(app, headers={"Authorization": f"Bearer {token}"}), "flights", "orders")
    return found


def seen(client: Any, *jobs: str) -> dict[str, Any]:
    """What the page's routes say to a user of some jobs, and whether Airflow's own API lets them trigger."""
    listed = client.get("/streambank/jobs").json()["jobs"]
    found: dict[str, Any] = {"jobs": [one["job"] for one in listed], "status": {}, "trigger": {}, "log": {}}
    for job in jobs:
        answer = client.get(f"/streambank/jobs/{job}")
        found["status"][job] = answer.status_code
        found["log"][job] = client.get(f"/streambank/jobs/{job}/log").status_code
        if answer.status_code == 200:
            found["trigger"][job] = sorted({one["may"]["trigger"] for one in answer.json()["dags"]})
        asked = client.post(f"/api/v2/dags/{job}.stop/dagRuns", json={"logical_date": None})
        found["trigger"][f"{job} by Airflow"] = asked.status_code != 403
    return found


def serve(folder: Path, port: int) -> None:
    """Serve Airflow until the standard input ends."""
    import threading

    import uvicorn

    app, tokens = made(folder)
    server = uvicorn.Server(uvicorn.Config(app, host=ports.HOST, port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.1)
        assert thread.is_alive(), "the API server does not start"
    print(json.dumps(tokens), flush=True)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing reads a pipe that logs of requests would fill
    sys.stdin.read()
    server.should_exit = True
    thread.join(30)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        serve(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        print(json.dumps(main(Path(sys.argv[1]))))
