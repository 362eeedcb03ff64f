from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.airflow_face.metadata_db import airflow_database
from tests.support.jobs.managed_job import Managed, managed_job

__all__ = ["airflow_database"]


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    """A declared job that runs without Spark."""
    with managed_job(tmp_path, monkeypatch) as job:
        yield job
