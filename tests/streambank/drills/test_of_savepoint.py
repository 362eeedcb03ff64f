"""Which savepoints a drill and a rehearsal restore."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import RefusedError
from streambank.declaration.load import load_jobs
from streambank.drills.of_savepoint import rehearse_made
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.storage import open_store
from tests.support.checkpoint.recorded import unpack
from tests.support.repository.derived_savepoint import derive

JOBS = """
repository = "savepoints"
[jobs.dedup]
application = "app.py"
checkpoint = "checkpoints"
queries = ["a", "b"]
master = "local[1]"
drill = {{savepoint = "{drilled}"}}
"""


@pytest.mark.parametrize("drilled", ["latest-good", "random", "each"])
def test_the_savepoint_that_was_made_is_rehearsed_whatever_the_job_declares_for_drills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drilled: str
) -> None:
    (tmp_path / "app.py").write_text("")
    (tmp_path / "jobs.toml").write_text(JOBS.format(drilled=drilled))
    recorded = unpack("4.3.0/hdfs-dedup", tmp_path / "recorded") / "checkpoint"
    checkpoints = {name: tmp_path / "checkpoints" / name for name in "ab"}
    for place in checkpoints.values():
        shutil.copytree(recorded, place)
    repository = Repository.open(open_store(tmp_path / "savepoints"), create=True)
    taken = {
        name: take(TakeRequest(open_store(place), repository, f"dedup/{name}")).savepoint
        for name, place in checkpoints.items()
    }
    made = derive(repository, "dedup/b", taken["b"])
    at = repository.load("dedup/b", made).taken_at.isoformat()  # a time means what was taken last

    def start(*args: Any, **more: Any) -> None:
        raise RefusedError("No driver is started here.", code="job-running", hint="")

    monkeypatch.setattr("streambank.drills.drill.start_job", start)
    monkeypatch.setattr("streambank.drills.drill.stop_job", lambda *args, **more: None)
    job = load_jobs(tmp_path / "jobs.toml").job("dedup")
    for _ in range(4):
        report = rehearse_made(job, "dedup/b", made, repository.store.uri, by={})
        assert {one.query: one.savepoint for one in report.queries} == {"a": taken["a"], "b": made}
        assert report.failed_step == "launch" and "No driver is started here" in report.error
    assert repository.resolve(at, "dedup/b").savepoint == taken["b"], "its rehearsal failed"
    for not_run, meant in ("It cannot.", taken["b"]), ("", made):
        found = replace(report, failed_step=None, code=None, error="", not_run=not_run)
        monkeypatch.setattr("streambank.drills.of_savepoint.rehearse", lambda *a, found=found, **b: found)
        rehearse_made(job, "dedup/b", made, repository.store.uri, by={})
        assert repository.resolve(at, "dedup/b").savepoint == meant
