from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.storage.memory import MemoryStore
from tests.support.jobs.declared import end_drivers, fake_launcher
from tests.support.jobs.simulated_job import SimulatedJob


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for `declare`; whatever its job `flights` left running is ended."""
    fake_launcher(tmp_path)
    yield tmp_path
    end_drivers(JobControl.open(str(tmp_path / "repository.control"), "flights"))


@pytest.fixture(params=["local", "memory"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> SimulatedJob:
    """A job with everything around it, on a local disk and in memory."""
    return SimulatedJob(tmp_path if request.param == "local" else f"memory://{tmp_path.name}")


@pytest.fixture
def control() -> JobControl:
    """The records of a job of which nothing is known yet, in memory."""
    return JobControl(MemoryStore(), "flights")
