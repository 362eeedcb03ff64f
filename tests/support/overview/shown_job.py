"""A job with something of everything that a page shows, by the real code but for Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.declaration import Job
from streambank.job.savepoint import savepoint_job
from streambank.job.start import start_job
from streambank.job.stop import stop_job
from streambank.overview.snapshot import Snapshot
from streambank.replicas.replicate import replicate_to
from streambank.savepoint.verify import verify
from streambank.storage import open_store
from tests.support.jobs.declared import BY, declare, fake_launcher
from tests.support.jobs.left_behind import next_generation, repository_of
from tests.support.json_examples import examples, mismatches
from tests.support.paths import ROOT
from tests.support.sla.drilled_job import drilled
from tests.support.sla.growing_state import grow

PAGE = ROOT / "docs/formats/page.md"
EXAMPLES = examples(PAGE)
MORE = """
[jobs.flights.retention]
keep_last = 2
max_age = "30d"
[jobs.flights.replicate]
to = ["replica"]
[jobs.flights.sla]
state_bytes = {warn = "1MB", breach = "1TB"}
"""


def use_fake_launcher(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let what a page shows be seen where a fake launcher has started the drivers."""
    for module in ("job.status", "overview.log"):
        patch.setattr(f"streambank.{module}.launcher_for", lambda job: fake_launcher(folder))


def shown_job(folder: Path, *, more: str = MORE) -> Job:
    """A job that was started, saved, stopped, restored and started again, with a history of two days."""
    job = declare(folder, "--period-s", "0.05", more=more)
    launcher = fake_launcher(folder)
    start_job(job, by=BY, why="monday", launcher=launcher)
    first = savepoint_job(job, by=BY, why="upgrade", note="before v2", name="before-v2").savepoints["main"]
    stop_job(job, by=BY, why="over", launcher=launcher)
    repository = repository_of(job)
    repository.pin(job.name, first.savepoint, by=BY)
    verify(repository, job.name, first.savepoint)
    verify(repository, job.name, first.savepoint, level="full")
    replicate_to(repository, open_store, job.replicate.to[0], [(job.name, first.savepoint)])
    next_generation(job, first.savepoint, sink="accept")
    grow(job, hours=48, per_hour=1e6, epochs=2)
    drilled(job, 1, first.savepoint)
    start_job(job, by=BY, why="again", launcher=launcher)
    return job


def mismatched(found: Snapshot) -> list[str]:
    """Where a snapshot is not shaped like docs/formats/page.md says."""
    wrong = list(mismatches(EXAMPLES["line"], found.line, "line"))
    for name, part in found.parts.items():
        if name in EXAMPLES and part["error"] is None:
            wrong += mismatches(_nameless(EXAMPLES[name]), _nameless(part), f"the part {name}")
    return wrong


def _nameless(part: Any) -> Any:
    """A part whose manifests stand in a list: their names are ids."""
    return {**part, "manifests": list(part["manifests"].values())} if "manifests" in part else part
