"""What the demo's processes get."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.airflow_parts import JOBS_FILE, least_environment
from demo.places import Places
from streambank.declaration.load import load_jobs


def test_temporary_files_stay_in_the_demos_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")
    places = Places(tmp_path)
    environment = least_environment(places)
    assert environment["TMPDIR"] == str(tmp_path / "tmp")
    assert (tmp_path / "tmp").is_dir(), "a JVM makes none"
    job = load_jobs(JOBS_FILE, variables={"STREAMBANK_DEMO_HOME": str(tmp_path)}).job("flights")
    assert job.spark["spark.driver.extraJavaOptions"] == f"-Djava.io.tmpdir={tmp_path / 'tmp'}"
