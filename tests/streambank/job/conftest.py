from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambank.job.control import JobControl
from tests.support.jobs import end_drivers, fake_launcher


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for `declare`; whatever its job `flights` left running is ended."""
    fake_launcher(tmp_path)
    yield tmp_path
    end_drivers(JobControl.open(str(tmp_path / "repository" / "jobs"), "flights"))
