"""What restores of a job leave behind, without Spark: savepoints, generations, and a query that goes on."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.recovery.request import RestoreRequest
from streambank.recovery.restore import restore
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.file.capture import FileSinkCapture
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.declared import BY, declare


def restored_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job with an earlier generation that nothing needs, and a temporary folder of its own."""
    (folder / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    job = declare(folder)
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    next_generation(job, save(job))
    go_on(job)
    return job


def restored_on_a_service(place: str, folder: Path) -> Job:
    """A job with all that it has at a place of a service, and with an earlier generation."""
    (folder / "app.py").write_text("")
    jobs = folder / "jobs.toml"
    jobs.write_text(
        f'repository = "{place}/repository"\n[jobs.flights]\napplication = "app.py"\n'
        f'checkpoint = "{place}/checkpoints/flights"\n'
    )
    job = load_jobs(jobs).job("flights")
    LiveCheckpoint(open_store(job.checkpoint)).run(3)
    next_generation(job, save(job))
    return job


def repository_of(job: Job) -> Repository:
    return Repository.open(open_store(job.repository), create=True)


def save(job: Job, *sinks: FileSinkCapture) -> str:
    control = job.records().generation()
    place = open_store(control.location if control else job.checkpoint)
    return take(TakeRequest(place, repository_of(job), job.name, sinks=sinks)).savepoint


def next_generation(job: Job, savepoint: str, **how: object) -> None:
    request = RestoreRequest(
        repository_of(job), savepoint, job=job.name, generation=job.records(), checkpoint=job.checkpoint,
        by=BY, **how,  # type: ignore[arg-type]
    )  # fmt: skip
    restore(request)


def go_on(job: Job) -> None:
    """One more committed batch where the job lives."""
    generation = job.records().generation()
    store = open_store(generation.location if generation else job.checkpoint)
    newest = max(int(name) for name in store.names("commits") if name.isdecimal())
    for log in ("offsets", "commits"):
        store.write(f"{log}/{newest + 1}", store.read(f"{log}/{newest}"))
