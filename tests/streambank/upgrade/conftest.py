"""A job that is run by a driver without Spark, and its upgrades."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs.managed_job import Managed, managed_job


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Managed]:
    """A running job, of which each batch may be written again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with managed_job(tmp_path, monkeypatch) as found:
        found.declare('[[jobs.flights.sinks]]\nkind = "idempotent-by-key"\n')
        found.hangs.write_text("8", encoding="utf-8")  # then no batch of a rehearsal is purged meanwhile
        found.start(until=7)
        yield found
