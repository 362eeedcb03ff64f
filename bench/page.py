"""How long Airflow takes to list many jobs on the page, and to take their lines: one line of JSON comes out.

    python -m bench.page JOBS [--database URL]

One Airflow in this process: twelve DAGs and a line of three kilobytes for each job, in the tables
where the page reads them. Milliseconds of a list (the page of all jobs, and the card on Home, ask for nothing
else) and of one job, as a viewer, as Airflow's application answers it with all of its middleware: the median,
the 95th percentile and the slowest of 100; seconds to write each line once; the database's size after each
line was written once and after ten times.

The database is SQLite. `--database postgres` starts a Postgres of the system's packages for it, which ends
with the measurement; any other value is the URL of an empty database, as SQLAlchemy reads it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROUNDS = 100


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Fill a database, and ask."""
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("jobs", type=int, metavar="JOBS")
    parser.add_argument("--database", default="sqlite", metavar="URL", help="default: %(default)s")
    options = parser.parse_args(argv)
    with TemporaryDirectory() as name, database(options.database, Path(name)) as url:
        os.environ |= {
            "AIRFLOW_HOME": name,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url,
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "viewer:viewer",
        }
        return measure(options.jobs)


@contextmanager
def database(asked: str, home: Path) -> Iterator[str]:
    """The URL of an empty database, for a `with` block."""
    if asked == "sqlite":
        yield f"sqlite:///{home}/airflow.db"
    elif asked == "postgres":
        from tests.support.sinks.postgres import running_postgres

        with running_postgres() as url:
            yield url
    else:
        yield asked


def measure(count: int) -> dict[str, Any]:
    """See `main`; the environment must be Airflow's by now."""
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.utils.db import initdb
    from fastapi.testclient import TestClient

    initdb()
    jobs = [f"job-{number:04d}" for number in range(count)]
    ids = fill(jobs)
    answer: dict[str, Any] = {"jobs": count, "database": dialect()}
    began = time.perf_counter()
    write_lines(ids)
    answer["write_s"] = round(time.perf_counter() - began, 2)
    answer["database_mb"] = megabytes()
    for _ in range(9):
        write_lines(ids)
    answer["database_10_mb"] = megabytes()
    app = create_app(apps="core")
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="viewer", role="viewer"))
    client = TestClient(app, headers={"Authorization": f"Bearer {token}"})
    for path in ("jobs", f"jobs/{jobs[0]}"):
        took, used = [], []
        for _ in range(ROUNDS + 1):
            began, cpu = time.perf_counter(), time.process_time()
            found = client.get(f"/streambank/{path}")
            took.append(time.perf_counter() - began)
            used.append(time.process_time() - cpu)
            assert found.status_code == 200, found.text
        key = "list" if path == "jobs" else "job"
        answer[f"{key}_ms"] = round(statistics.median(took[1:]) * 1000)
        answer[f"{key}_p95_ms"] = round(statistics.quantiles(took[1:], n=20)[-1] * 1000)
        answer[f"{key}_cpu_ms"] = round(statistics.median(used[1:]) * 1000)
        answer[f"{key}_slowest_ms"] = round(max(took[1:]) * 1000)
        answer[f"{key}_kb"] = len(found.content) // 1000
    assert len(client.get("/streambank/jobs").json()["jobs"]) == count
    return answer


def fill(jobs: list[str]) -> dict[str, int]:
    """Twelve DAGs and a page asset for each job, as a DAG processor leaves them; the assets' ids."""
    from airflow.models.asset import AssetActive, AssetModel, TaskInletAssetReference
    from airflow.models.dag import DagModel, DagTag
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session
    from sqlalchemy import insert

    from streambank_airflow.assets import page_asset
    from streambank_airflow.configuration import TAG
    from streambank_airflow.dag_names import VERBS

    dags = [
        {
            "dag_id": f"{job}.{verb}",
            "bundle_name": "dags-folder",
            "is_stale": False,
            "is_paused": False,
            "max_active_tasks": 16,
            "max_consecutive_failed_dag_runs": 0,
            "has_task_concurrency_limits": False,
        }
        for job in jobs
        for verb in VERBS
    ]
    assets = [page_asset(job) for job in jobs]
    ids = {job: number for number, job in enumerate(jobs, 1)}
    with create_session() as session:
        session.merge(DagBundleModel(name="dags-folder"))
        session.flush()
        session.execute(insert(DagModel), dags)
        tags = [
            {"dag_id": dag["dag_id"], "name": name}
            for dag in dags
            for name in (TAG, str(dag["dag_id"]).rpartition(".")[0])
        ]
        session.execute(insert(DagTag), tags)
        session.execute(
            insert(AssetModel),
            [
                {"id": ids[job], "name": asset.name, "uri": asset.uri, "group": asset.group, "extra": {}}
                for job, asset in zip(jobs, assets, strict=True)
            ],
        )
        session.execute(insert(AssetActive), [{"name": asset.name, "uri": asset.uri} for asset in assets])
        named = [{"asset_id": ids[job], "dag_id": f"{job}.sla", "task_id": "check"} for job in jobs]
        session.execute(insert(TaskInletAssetReference), named)
    return ids


def write_lines(ids: dict[str, int]) -> None:
    """A line of each job, each in a separate transaction, as watchers write them."""
    from airflow._shared.state import AssetScope
    from airflow.state import get_state_backend

    for job, asset_id in ids.items():
        line = {"format": 1, "job": job, "at": str(time.time()), "spark": [0.123456] * 250, "why": "x" * 200}
        get_state_backend().set(AssetScope(asset_id=asset_id), "line", json.dumps(line))


def dialect() -> str:
    """What the database is."""
    from airflow.utils.session import create_session

    with create_session() as session:
        return session.get_bind().dialect.name


def megabytes() -> float | None:
    """The size of the database; None where it is not known how it is asked."""
    from airflow.utils.session import create_session
    from sqlalchemy import text

    sizes = {
        "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        "postgresql": "SELECT pg_database_size(current_database())",
    }
    with create_session() as session:
        asked = sizes.get(session.get_bind().dialect.name)
        return None if asked is None else round(session.execute(text(asked)).scalar_one() / 1e6, 1)


if __name__ == "__main__":
    print(json.dumps(main()))
