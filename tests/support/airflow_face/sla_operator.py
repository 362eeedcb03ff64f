"""The operator that judges SLAs, run outside of any DAG, for its tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException

from streambank_airflow.operators.sla import CheckSlaOperator
from tests.support.airflow_face.notifiers import FILE_NOTIFIER


@pytest.fixture
def jobs_file(tmp_path: Path) -> Path:
    """Three jobs, one of two queries; the first declares whom to tell."""
    notify = ", ".join(
        f'{{class = "{FILE_NOTIFIER}", args = {{file = "{tmp_path / name}"}}{more}}}'
        for name, more in (("chat", ""), ("pager", ', least = "breach"'))
    )
    file = tmp_path / "streaming_jobs.toml"
    file.write_text(
        f"""
repository = "repository"
[jobs.flights]
application = "a.py"
checkpoint = "c/flights"
sla.notify = [{notify}]
[jobs.trains]
application = "a.py"
checkpoint = "c/trains"
[jobs.orders]
application = "a.py"
checkpoint = "c/orders"
queries = ["left", "right"]
""",
        encoding="utf-8",
    )
    return file


Check = Callable[..., Any]


@pytest.fixture
def check(jobs_file: Path) -> Check:
    """Runs the operator outside of any DAG; what it left is in `check.left`."""

    def run(**arguments: Any) -> Any:
        left: list[Any] = []
        context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: left.append(value))}
        arguments = {"jobs_file": str(jobs_file), **arguments}
        if "jobs" not in arguments:
            arguments = {"job": "flights", **arguments}
        result = None
        try:
            result = CheckSlaOperator(task_id="check", **arguments).execute(context)
        except AirflowException as error:
            return SimpleNamespace(result=left[-1] if left else None, error=error)
        assert result == left[-1]
        return SimpleNamespace(result=result, error=None)

    return run
