"""Which Airflow is refused; that the supported ones work is what all tests here show on each of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streambank_airflow.airflow_versions import named_deadline

IMPORT = """
import sys, airflow
airflow.__version__ = {!r}
sys.modules.pop("streambank_airflow", None)  # Airflow may have asked it what it provides
import streambank_airflow.hooks.streambank
"""


def import_on(version: str, project_root: Path) -> subprocess.CompletedProcess[str]:
    """Import the provider where Airflow says that it is this version."""
    command = [sys.executable, "-c", IMPORT.format(version)]
    return subprocess.run(command, cwd=project_root / "provider", capture_output=True, text=True)


@pytest.mark.parametrize("version", [pytest.param("2.11.0", marks=pytest.mark.storm), "3.0.6"])
def test_an_older_airflow_is_refused_by_name(version: str, project_root: Path) -> None:
    refused = import_on(version, project_root)

    assert refused.returncode == 1
    (message,) = (line for line in refused.stderr.splitlines() if line.startswith("RuntimeError"))
    assert "needs Airflow 3.1 or newer" in message
    assert f"this is Airflow {version}. Hint: upgrade Airflow" in message


@pytest.mark.parametrize("version", ["3.1.0rc1", pytest.param("3.10.0", marks=pytest.mark.storm)])
def test_newer_ones_are_not(version: str, project_root: Path) -> None:
    assert import_on(version, project_root).returncode == 0


def test_the_oldest_airflow_is_the_one_that_pyproject_asks_for(project_root: Path) -> None:
    from streambank_airflow import OLDEST_AIRFLOW

    oldest = ".".join(map(str, OLDEST_AIRFLOW))
    assert f'"apache-airflow>={oldest}",' in (project_root / "pyproject.toml").read_text()


def test_a_deadline_with_a_wrong_argument_is_an_error() -> None:
    with pytest.raises(TypeError):
        named_deadline("restore", when="never")
