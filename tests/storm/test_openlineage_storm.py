"""Savepoints as OpenLineage sees them: its provider installed, real tasks, and the events that it sends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpoint.recorded import unpack
from tests.support.venvs import LOCKS
from tests.support.wheels import UV, built_wheel, run, whole_environment

pytestmark = [pytest.mark.storm, pytest.mark.airflow, pytest.mark.timeout(1200)]

# An environment with the wheel, everything that is here, and OpenLineage's provider beside it.


def openlineage_environment(wheel: Path, folder: Path) -> Path:
    """Such an environment. What is added is fetched by its hashes."""
    whole_environment(wheel, folder)
    install = [str(UV), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    python = ["--python", str(folder / "bin" / "python")]
    environment = {**os.environ, "UV_CACHE_DIR": str(UV.parent.parent / "cache")}
    lock = ["--requirement", str(LOCKS / "openlineage.lock")]
    subprocess.run([*install, *python, *lock], check=True, env=environment)
    return folder


SECRET = "hunter2-of-the-store"
JOBS = """
repository = "savepoints"
[jobs.orders]
application = "app.py"
checkpoint = "old/checkpoint"
"""
DAG = """
from pathlib import Path
from airflow.sdk import DAG
from streambank_airflow.operators.restore import RestoreSavepointOperator
from streambank_airflow.operators.savepoint import CreateSavepointOperator, VerifySavepointOperator

HERE = Path("{folder}")
where = {{"job": "orders", "jobs_file": str(HERE / "jobs.toml"), "retries": 0}}
with DAG("own", schedule=None):
    take = CreateSavepointOperator(task_id="take", note="{secret}", **where)
    verify = VerifySavepointOperator(task_id="verify", **where)
    copy = str(HERE / "copy")
    restore = RestoreSavepointOperator(task_id="restore", savepoint="latest", into=copy, **where)
    take >> verify >> restore
"""

Named = set[tuple[str, str]]


def named(datasets: list[dict[str, Any]]) -> Named:
    return {(one["namespace"], one["name"]) for one in datasets}


def test_tasks_say_what_they_read_and_wrote(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    here = openlineage_environment(built_wheel(tmp_path / "dist"), tmp_path / "venv")
    (tmp_path / "jobs.toml").write_text(JOBS, encoding="utf-8")
    (tmp_path / "app.py").write_text("", encoding="utf-8")
    unpack("4.3.0/rocksdb-window", tmp_path / "old")
    (tmp_path / "dags").mkdir()
    dag = DAG.format(folder=tmp_path, secret=SECRET)
    (tmp_path / "dags" / "own.py").write_text(dag, encoding="utf-8")
    events = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    variables = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
    }
    for arguments in ("db migrate", "dags test own"):
        run([here / "bin" / "python", "-m", "airflow", *arguments.split()], tmp_path, variables=variables)

    text = events.read_text(encoding="utf-8")
    done = {
        event["job"]["name"]: event
        for event in map(json.loads, text.splitlines())
        if event["eventType"] == "COMPLETE"
    }
    saved = ("file", f"{tmp_path}/savepoints/savepoints/orders")
    checkpoint = ("file", f"{tmp_path}/old/checkpoint")
    take, verify, restore = (done[f"own.{task}"] for task in ("take", "verify", "restore"))
    assert checkpoint in named(take["inputs"]) and named(take["outputs"]) == {saved}
    (output,) = take["outputs"]
    version = output["facets"]["version"]["datasetVersion"]
    assert version.startswith("b0")
    assert output["outputFacets"]["outputStatistics"]["size"] > 0
    assert named(verify["inputs"]) == {saved} and not verify["outputs"]
    assert verify["inputs"][0]["facets"]["version"]["datasetVersion"] == version
    assert named(restore["inputs"]) == {saved} and ("file", f"{tmp_path}/copy") in named(restore["outputs"])
    for event in done.values():
        datasets = json.dumps([event["inputs"], event["outputs"]])
        assert SECRET not in datasets
