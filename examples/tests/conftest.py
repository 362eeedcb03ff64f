"""Airflow for tests: a home of its own, set before Airflow is imported, and the DAGs of this repository."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-")
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(Path(__file__).parents[1] / "dags")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

pytest_plugins = ["streambank_airflow.testing.fixtures"]
