"""Python workers on this machine are those of the Python that asks, whatever `python3` the path has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from streambank.driver.installed import Installation
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from streambank_spark.submit.executor_packages import VARIABLE, python_of_workers
from streambank_spark.submit.submission import Submission
from tests.support.checkpoint.recorded import unpack


@pytest.mark.parametrize(
    ("master", "said", "python"),
    [
        ("local[2]", None, sys.executable),
        ("local[*]", "/opt/python", "/opt/python"),
        ("spark://master:7077", None, None),
        ("yarn", "/opt/python", "/opt/python"),
    ],
)
def test_who_runs_python_for_executors(
    master: str, said: str | None, python: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    if said is not None:
        monkeypatch.setenv(VARIABLE, said)
    assert python_of_workers(master) == python


def test_what_is_submitted_here_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    installation = Installation(sys.executable, tmp_path, tmp_path / "run_query.py", ())
    files = tmp_path / "conf", tmp_path / "code.zip"
    here = Submission(
        installation, "local[2]", "compact", tmp_path / "app.py", (), *files, "packages", tmp_path / "log"
    )
    assert here.environment[VARIABLE] == sys.executable
    assert VARIABLE not in replace(here, master="spark://master:7077").environment


@pytest.mark.storm
@pytest.mark.spark
def test_state_is_compacted_from_an_environment_that_is_not_active(tmp_path: Path) -> None:
    """The first `python3` of the path is another one: it would not have what the rewriting takes."""
    checkpoint = unpack("4.3.0/hdfs-window", tmp_path / "recorded") / "checkpoint"
    repository = Repository.open(open_store(tmp_path / "repository"), create=True)
    savepoint = take(TakeRequest(open_store(checkpoint), repository, "job")).savepoint
    (tmp_path / "bin").mkdir()
    other, used = tmp_path / "bin" / "python3", tmp_path / "used"
    other.write_text(f"#!/bin/sh\necho used >> {used}\nexit 1\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{other.parent}{os.pathsep}{environment['PATH']}"
    arguments = ["state", "compact", savepoint, "-r", str(repository.store.uri), "--where", "true", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "streambank", *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["savepoint"] not in (None, savepoint)
    assert not used.exists()
