"""Fixtures of pytest: `pytest_plugins = ["streambank_airflow.testing.fixtures"]` in a `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank_airflow.testing.fake_jobs import FakeJobs


@pytest.fixture
def fake_jobs(tmp_path: Path) -> Iterator[FakeJobs]:
    """Jobs that a test declares, in its temporary directory; their drivers end with the test."""
    with FakeJobs(tmp_path / "streambank") as jobs:
        yield jobs


@pytest.fixture(scope="session")
def airflow_database() -> None:
    """The tables of Airflow's metadata database, which `dag.test()` needs."""
    from airflow.utils.db import initdb

    initdb()
