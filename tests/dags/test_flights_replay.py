"""The demo's DAG that lets flights arrive: what its form says is what the replay is told."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from demo.stack.places import KAFKA_VARIABLE
from spark_jobs.flights import replay
from tests.support.airflow_face.moved import DagBag


def parsed(project_root: Path) -> Any:
    bag = DagBag(str(project_root / "demo" / "dags"))
    assert bag.import_errors == {}
    return bag.dags["flights.replay"]


def told(dag: Any, folder: Path, **form: Any) -> list[str]:
    """The words that the task's command gives to the replay, one of which may be a person's."""
    params = {name: dag.params[name] for name in dag.params} | form
    task = dag.get_task("replay")
    variables = {
        name: Environment().from_string(value).render(params=params) for name, value in task.env.items()
    }
    (folder / "echo").write_text('#!/bin/sh\nshift\nprintf "%s\\n" "$@"\n')
    (folder / "echo").chmod(0o755)
    variables["PYTHON"] = str(folder / "echo")
    done = subprocess.run(
        ["bash", "-c", task.bash_command], env=variables, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_flights_come_to_the_stacks_topic_unless_a_folder_is_named(
    airflow_database: None, project_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KAFKA_VARIABLE, "kafka:9092")
    dag = parsed(project_root)
    pace = ["--rows-per-file", "4000", "--gap-ms", "1000"]
    everything = ["--limit", "336776"]
    topic = ["--kafka", "kafka:9092", "--topic", "flights", "--skip"]
    assert told(dag, tmp_path) == [*topic, "0", *pace, *everything]
    assert told(dag, tmp_path, target="/data/a folder; exit") == ["/data/a folder; exit", *pace, *everything]
    assert told(dag, tmp_path, skip=500, limit=900) == [*topic, "500", *pace, "--limit", "900"]
    assert told(dag, tmp_path, closing_only=True) == [*topic, "0", "--closing-only", *pace, *everything]


def test_where_nothing_is_named_the_replay_says_what_it_needs(
    airflow_database: None,
    project_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(KAFKA_VARIABLE, raising=False)
    with pytest.raises(SystemExit):
        replay.main(told(parsed(project_root), tmp_path))
    assert "name either a directory, or --kafka and --topic" in capsys.readouterr().err
