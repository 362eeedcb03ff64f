"""Environments in which pyspark-client has written over PySpark, as plain pip makes them beside Airflow.

Each has the command line of this checkout, and is of one Python.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.spark.releases import python_of
from tests.support.venvs import LOCKS, filled_venv

CLIENT = "4.2.0"
"""The version of pyspark-client in them: what a plain `import pyspark` says."""


def mixed_installation(version: str) -> Path:
    """The interpreter of one; made the first time, which takes minutes."""
    project = ("--no-build-isolation-package", "airflow-provider-streambank", "--editable", ROOT)
    # The project's own settings leave pyspark-client out.
    client = ("--no-config", "--no-deps", "--requirement", LOCKS / "mixed-client.lock")
    folder = ROOT / ".streambank" / "mixed" / version
    python = filled_venv(folder, LOCKS / "mixed.lock", python_of(version), *project, *client)
    command = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.strip()
    assert said == CLIENT, f"{python} has the files of PySpark {said}"
    return python
