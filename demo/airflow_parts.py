"""Airflow as four processes on loopback, as parts for the keeper: their commands and their settings."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from demo.parts import Part
from demo.places import PROCESS_MARK, ROOT, Places
from demo.ports import HOST

USER = "admin"
JOBS_FILE = ROOT / "demo" / "streaming_jobs.toml"
# `--skip-serve-logs`: those log servers would listen on all interfaces; task logs are read from disk here.
SERVICES: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
# What of the caller's environment Airflow gets: enough to find programs and to speak the reader's language.
PASSED_ON = ("HOME", "JAVA_HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TZ", "USER")


def airflow_command(*arguments: str) -> tuple[str, ...]:
    """One of Airflow's commands, run by this Python interpreter."""
    return (sys.executable, "-m", "airflow", *arguments)


def parts(
    environment: Mapping[str, str],
    folder: Path,
    *,
    again: bool = False,
    ready: Mapping[str, str] | None = None,
) -> list[Part]:
    """The migration of its database, then its four processes.

    Args:
        environment: What `environment` gives, and perhaps more.
        folder: Where they run.
        again: Whether a process that ends by itself is started again.
        ready: By name, a check that must pass before the next part is started.
    """
    here, ready = str(folder), ready or {}
    return [
        Part("migrate", airflow_command("db", "migrate"), environment, here, once=True),
        *(
            Part(name, airflow_command(*arguments), environment, here, again=again, ready=ready.get(name, ""))
            for name, arguments in SERVICES.items()
        ),
    ]


def streambank_settings(places: Places, jobs_file: Path = JOBS_FILE) -> dict[str, str]:
    """Streambank's part of the environment: the jobs file and the locations in it."""
    return {
        "AIRFLOW_CONN_STREAMBANK_DEFAULT": json.dumps(
            {
                "conn_type": "streambank",
                "extra": {"repository": places.repository.as_uri(), "jobs_file": str(jobs_file)},
            }
        ),
        "STREAMBANK_DEMO_HOME": str(places.home),
        "STREAMBANK_JOBS": str(jobs_file),
    }


def environment(places: Places, port: int, database: str = "") -> dict[str, str]:
    """Airflow's settings for this demo, all of them: nothing is read from the caller's own Airflow.

    Args:
        places: The demo's folders.
        port: Where the API server will listen.
        database: The URL of its metadata database; by default its own file.

    Returns:
        A whole environment. Secrets in it are random and live as long as the demo.
    """
    url = f"http://{HOST}:{port}"
    settings = {
        "AIRFLOW_HOME": str(places.airflow),
        "XDG_STATE_HOME": str(places.home / "state"),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(_bundles()),
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database or f"sqlite:///{places.airflow / 'airflow.db'}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(places.airflow / "logs"),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "NO_COLOR": "1",
    }
    return {**least_environment(places), **settings}


def least_environment(places: Places) -> dict[str, str]:
    """What every part gets: where programs are, the reader's language, and the mark by which it is found."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    passed["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{passed.get('PATH', os.defpath)}"
    places.temporary.mkdir(parents=True, exist_ok=True)
    return {**passed, PROCESS_MARK: str(places.home), "TMPDIR": str(places.temporary)}


def _bundles() -> list[dict[str, object]]:
    folders = {"jobs": ROOT / "dags", "demo": ROOT / "demo" / "dags"}
    return [
        {
            "name": name,
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(folder), "refresh_interval": 30},
        }
        for name, folder in folders.items()
    ]


def write_password(places: Places) -> str:
    """Make the one user's password where Airflow's simple login reads it: 12 characters, new each time."""
    password = secrets.token_urlsafe(9)
    places.airflow.mkdir(parents=True, exist_ok=True)
    store = places.airflow / "simple_auth_manager_passwords.json.generated"
    store.touch(mode=0o600)
    store.write_text(json.dumps({USER: password}))
    return password
