"""A job of three queries whose checkpoints and savepoints are made without Spark, to restore all as one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import JobControl
from streambank.core.errors import RefusedError
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.driver.prepare import prepare_launch
from streambank.recovery import together
from streambank.recovery.choosing.together import choose_together
from streambank.recovery.request import RestoreRequest, TogetherRequest
from streambank.recovery.restore import restore
from streambank.recovery.together import TogetherReport, restore_together
from streambank.repository.repository import Repository
from streambank.savepoint.take import TakeRequest, take
from streambank.sinks.unguarded import sinks_from_descriptions
from streambank.storage import open_store
from tests.support.checkpoint.live_checkpoint import LiveCheckpoint
from tests.support.jobs.simulated_job import BY
from tests.support.storage.faulty_store import SimulatedCrash

QUERIES = ("hours", "sessions", "users")
OF_ALL = ("chosen", "file_sinks", "query", "savepoints", "whole")
"""What a request says of all queries; the rest is of each."""
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Trio:
    """A job of three stateful queries that write to consoles, and a clock for its savepoints."""

    job: Job
    repository: Repository
    live: dict[str, LiveCheckpoint]
    clock: pytest.MonkeyPatch

    @property
    def control(self) -> JobControl:
        return self.job.records()

    def run(self, batches: int) -> None:
        for live in self.live.values():
            for _ in range(batches):
                live.plan()
                live.commit()

    def take(self, query: str, minute: float) -> str:
        moment = BEGIN + timedelta(minutes=minute)
        self.clock.setattr("streambank.savepoint.take.datetime", stands_at(moment))
        checkpoint = open_store(self.job.queries[query])
        sinks = sinks_from_descriptions(["ConsoleTable"])
        return take(
            TakeRequest(checkpoint, self.repository, f"{self.job.name}/{query}", sinks=sinks)
        ).savepoint

    def take_all(self, minute: float) -> dict[str, str]:
        """One savepoint of each, a second after the other."""
        return {name: self.take(name, minute + number / 60) for number, name in enumerate(QUERIES)}

    def request(self, reference: str = "latest-good", **more: Any) -> TogetherRequest:
        of_all = {name: more.pop(name) for name in OF_ALL if name in more}
        records, repository = self.control, more.pop("repository", self.repository)
        each = RestoreRequest(repository, reference, generation=records, by=BY, **more)
        return TogetherRequest(each, self.job, **of_all)

    def restore(self, **more: Any) -> TogetherReport:
        return restore_together(self.request(**more))

    def alone(self, query: str) -> RestoreRequest:
        """A restore of one query to its newest savepoint."""
        chosen = choose_together(self.job, self.repository).queries
        return together._of_query(self.request(), query, chosen)

    def generations(self) -> dict[str, tuple[int, str | None]]:
        found = {name: self.control.generation(name) for name in QUERIES}
        return {name: (one.number, one.from_savepoint) for name, one in found.items() if one is not None}

    def may_start(self) -> bool:
        try:
            prepare_launch(self.job, self.control, by=BY)
        except RefusedError as error:
            assert error.code == "restore-unfinished"
            return False
        return True

    def killed_at(self, query: str, **more: Any) -> None:
        """A restore of all whose process is killed when it comes to a query."""

        def dies(request: RestoreRequest, **options: Any) -> object:
            if query in str(request.job):
                raise SimulatedCrash("killed")
            return restore(request, **options)

        with self.clock.context() as patched:
            patched.setattr(together, "restore", dies)
            with pytest.raises(SimulatedCrash):
                self.restore(**more)
        self.unlock()

    def unlock(self) -> None:
        for lock in (self.control.operation_lock.break_off, self.control.lease.break_off):
            lock(by=BY, why="killed", even_live=True)


def stands_at(moment: datetime) -> type[datetime]:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # of the base class
            return moment

    return Clock


def declare_trio(folder: Path, patch: pytest.MonkeyPatch) -> Trio:
    """The job, with three batches of each query; what is patched is undone with `patch`."""
    (folder / "app.py").write_text("")
    (folder / "jobs.toml").write_text(
        'repository = "repository"\n[jobs.flights]\napplication = "app.py"\ncheckpoint = "ck"\n'
        f"queries = {json.dumps(QUERIES)}\n"
    )
    job = load_jobs(folder / "jobs.toml").job("flights")
    live = {name: LiveCheckpoint(open_store(job.queries[name])) for name in QUERIES}
    made = Trio(job, Repository.open(open_store(job.repository), create=True), live, patch)
    made.run(3)
    assert made.may_start()
    return made


def unreadable(place: Repository, query: str, savepoint: str) -> None:
    place.store.write(f"savepoints/flights/{query}/{savepoint}.json", b"{}")


def flip(place: Repository, query: str, savepoint: str) -> None:
    """Let a savepoint name content that is not there; when it was taken can still be read."""
    manifest = place.load(f"flights/{query}", savepoint)
    missing = next(entry for entry in manifest.files if entry.path.startswith("offsets/"))
    (path,) = [one.path for one in place.store.list(f"savepoints/flights/{query}") if savepoint in one.path]
    place.store.write(path, place.store.read(path).replace(missing.digest.encode(), b"0" * 64))
