"""The roll-up as people start it: spark-submit of the entry, on local files and on a real S3 server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambank.storage import open_store
from tests.streambank_spark.programs.test_roll_up import END, by_key, engine_says, history, rolled
from tests.support.driver import environment, submit
from tests.support.jobs import write_jobs
from tests.support.places import ROOT
from tests.support.s3_servers import S3Server, seaweedfs

__all__ = ["seaweedfs"]  # a fixture

# In the storms: each of them starts Spark three times.
pytestmark = [pytest.mark.spark, pytest.mark.storm]


def rolled_up(folder: Path, *arguments: str, variables: Mapping[str, str] | None = None) -> Any:
    """What the entry answers."""
    done = subprocess.run(
        submit(ROOT / "spark_jobs/roll_up_progress.py", *arguments),
        cwd=folder,
        env=environment(**(variables or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # Spark shows all that Python says on its standard output
        text=True,
        timeout=300,
        check=False,
    )
    return done


def test_on_local_files_by_the_declaration(tmp_path: Path) -> None:
    jobs = write_jobs(tmp_path)
    control = open_store(tmp_path / "repository" / "jobs")
    history(control)
    output, report = tmp_path / "rolled", tmp_path / "report.json"
    arguments = ("--jobs", str(jobs), "--output", str(output), "--report", str(report), "--portion", "60kB")
    done = rolled_up(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout
    assert "flights/main: 48 hours added" in done.stdout
    (said,) = json.loads(report.read_text())["queries"]
    assert (said["job"], said["hours"], said["records"], said["overtaken"]) == ("flights", 48, 411, False)
    assert by_key(rolled(open_store(output))) == engine_says(control, "flights", "main", END)

    files = {path: path.read_bytes() for path in output.rglob("*.parquet")}
    done = rolled_up(tmp_path, *arguments)
    assert (done.returncode, json.loads(report.read_text())["queries"][0]["hours"]) == (0, 0), done.stdout
    assert {path: path.read_bytes() for path in output.rglob("*.parquet")} == files

    (newest,) = output.glob("job=flights/day=2026-11-02/*.parquet")
    newest.write_bytes(b"PAR1")
    done = rolled_up(tmp_path, *arguments)
    assert done.returncode == 4
    assert "does not say how far it goes" in done.stdout
    assert "Traceback" not in done.stdout


def test_on_s3(seaweedfs: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seaweedfs.use(monkeypatch)
    control, output = open_store(seaweedfs.location()), open_store(seaweedfs.location())
    history(control)
    arguments = ("--control", control.uri, "--job", "flights", "--output", output.uri, "--portion", "60kB")
    done = rolled_up(tmp_path, *arguments, variables=seaweedfs.environment)
    assert done.returncode == 0, done.stdout
    assert by_key(rolled(output)) == engine_says(control, "flights", "main", END)
    before = {info.path: info.identity for info in output.list()}
    assert len(before) == 2
    done = rolled_up(tmp_path, *arguments, variables=seaweedfs.environment)
    assert done.returncode == 0, done.stdout
    assert {info.path: info.identity for info in output.list()} == before
    done = rolled_up(tmp_path, "--control", control.uri, "--job", "other", "--output", output.uri,
                     variables=seaweedfs.environment)  # fmt: skip
    assert done.returncode == 3
    assert "There are no progress records of other" in done.stdout
