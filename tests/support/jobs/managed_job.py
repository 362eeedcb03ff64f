"""A declared job for tests of the Airflow face: everything is real but Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streambank.control.control import Desired, JobControl
from streambank.control.generations import Generation
from streambank.control.processes import who
from streambank.core.names import MAIN
from streambank.declaration.declaration import Job
from streambank.declaration.load import load_jobs
from streambank.job.start import StartResult, start_job
from streambank.job.stop import stop_job
from streambank.repository.repository import Repository
from streambank.storage import local_path, open_store
from tests.support.jobs.declared import end_drivers, fake_installation
from tests.support.waiting import poll

BY = who("test")


@dataclass(frozen=True, slots=True)
class Managed:
    """A declared job `flights`, run by tests/support/drivers/fake_driver.py, which keeps committing."""

    folder: Path
    jobs_file: Path

    @property
    def dies(self) -> Path:
        """Where this file holds a number, each driver dies after so many batches."""
        return self.folder / "dies"

    @property
    def hangs(self) -> Path:
        """Where this file holds a number, each driver stands still after so many batches."""
        return self.folder / "hangs"

    @property
    def differs(self) -> Path:
        """Where this file is, the copy of a drill computes something else than the job."""
        return self.folder / "differs"

    def declare(self, more: str) -> None:
        self.jobs_file.write_text(self.jobs_file.read_text(encoding="utf-8") + more, encoding="utf-8")

    def declare_alerts(self, *kinds: str) -> Path:
        """Let a file have the alerts of these kinds."""
        file = self.folder / "chat"
        self.declare(
            '\n[[jobs.flights.notify]]\nclass = "tests.support.airflow_face.notifiers.FileNotifier"\n'
            f'args = {{file = "{file}", text = "{{{{ kind }}}}: {{{{ message }}}}"}}\nkinds = {list(kinds)}\n'
        )
        return file

    @property
    def job(self) -> Job:
        return load_jobs(self.jobs_file).job("flights")

    @property
    def control(self) -> JobControl:
        return self.job.records()

    @property
    def generation(self) -> Generation:
        found = self.control.generation()
        assert found is not None
        return found

    @property
    def desired(self) -> Desired:
        found = self.control.desired()
        assert found is not None
        return found

    @property
    def checkpoint(self) -> Path:
        return self.checkpoint_of(None)

    def checkpoint_of(self, query: str | None) -> Path:
        """The directory of the current generation of a query; None for the only one."""
        generation = self.control.generation(query)
        path = local_path(generation.location if generation else self.job.queries[query or MAIN])
        assert path is not None
        return path

    @property
    def repository(self) -> Repository:
        return Repository.open(open_store(self.job.repository))

    def start(self, until: int | None = None) -> StartResult:
        """Start it; return when a batch is committed, where one is given."""
        result = start_job(self.job, by=BY)
        if until is not None:
            self.wait_for_batch(until)
        return result

    def stop(self, why: str = "") -> None:
        stop_job(self.job, by=BY, why=why)

    def kill(self) -> None:
        end_drivers(self.control)

    def last_batch(self, query: str | None = None) -> int:
        folder = self.checkpoint_of(query) / "commits"
        return max((int(one.name) for one in folder.glob("[0-9]*")), default=-1) if folder.is_dir() else -1

    def wait_for_batch(self, batch: int, query: str | None = None) -> None:
        poll(lambda: self.last_batch(query) >= batch, timeout_s=60)

    def driver_lives(self) -> bool:
        view = self.control.lease.view()
        return view is not None and view.state == "live"


@contextmanager
def managed_job(folder: Path, patch: pytest.MonkeyPatch, queries: Sequence[str] = ()) -> Iterator[Managed]:
    """Declare the job, with these queries where it has several; what it left running is ended afterwards."""
    jobs_file = folder / "streaming_jobs.toml"
    (folder / "app.py").write_text("", encoding="utf-8")
    jobs_file.write_text(
        f"""
repository = "repository"

[jobs.flights]
description = "Departures."
application = "app.py"
args = ["--period-s", "0.1", "--dies", "{folder / "dies"}", "--hangs", "{folder / "hangs"}", "--differs",
    "{folder / "differs"}"]
checkpoint = "checkpoints/flights"
{f"queries = {list(queries)}" if queries else ""}

[jobs.flights.savepoint]
schedule = "@hourly"

[jobs.flights.start]
timeout = "30s"

[jobs.flights.stop]
force_after = "5s"

[jobs.flights.lease]
beat = "100ms"
ttl = "2s"
""",
        encoding="utf-8",
    )
    installation = fake_installation(folder)
    patch.setattr("streambank.driver.launchers.local.installation_of", lambda job: installation)
    managed = Managed(folder, jobs_file)
    try:
        yield managed
    finally:
        end_drivers(managed.control)


@contextmanager
def meanwhile(managed: Managed, *steps: Callable[[], Any]) -> Iterator[None]:
    """Do some steps beside the block; where one fails the job is stopped, so that its keeper ends."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:
            failed.append(error)
            managed.stop("a step of the test failed")

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    if failed:
        raise failed[0]


def hand_over(records: Callable[[], JobControl], patch: pytest.MonkeyPatch) -> list[str]:
    """Let a run that a DAG triggers watch the job as soon as it is there; the runs of which that was so."""
    from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator

    execute = TriggerDagRunOperator.execute
    taken_over: list[str] = []

    def execute_and_watch(self: TriggerDagRunOperator, context: Any) -> Any:
        run_id = f"triggered__{len(taken_over)}"
        taken_over.append(run_id)
        by = {"dag_id": self.trigger_dag_id, "run_id": run_id}
        control = records()
        desired = control.desired()
        control.watches.begin(by=by, desired=desired.number if desired else None)
        return execute(self, context)

    patch.setattr(TriggerDagRunOperator, "execute", execute_and_watch)
    return taken_over
