"""Declared jobs for tests of DAGs: all of them is real but Spark.

A driver is a process of Python that has neither Spark nor Java (streambank_spark/stand_in). It holds the
job's lease, commits batches into a checkpoint of Spark's format, and stops at a batch boundary when it is
asked. What operators, sensors and triggers do with it is what they do in production.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streambank.control.control import JobControl
from streambank.control.processes import ProcessId, send_signal, who
from streambank.core.errors import InputError
from streambank.core.json_text import loads
from streambank.core.python310 import parse_toml
from streambank.declaration.declaration import Job
from streambank.declaration.fields import merge
from streambank.declaration.given import plain
from streambank.declaration.load import load_jobs
from streambank.driver.launchers.local import own_processes
from streambank.driver.spec import spec_of
from streambank.job.start import start_job
from streambank.job.status import job_status
from streambank.job.stop import stop_job
from streambank.repository.catalog import SavepointSummary
from streambank_airflow.configuration import JOBS_VARIABLE
from streambank_airflow.connections.settings import Settings
from streambank_airflow.hooks import declared, streambank
from streambank_airflow.hooks.declared import DeclaredJobs, remembered_jobs
from streambank_airflow.hooks.values import AirflowValues

_BY = who("test")
_KEPT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("description", "queries", "tags", "time_zone"), ()),
    **dict.fromkeys(("compact", "generations", "health", "hot_keys", "retention", "start", "stop"), ()),
    "drill": ("repository", "scratch"),
    "restore": ("ask", "into", "new_outputs", "notify"),
    "savepoint": ("lock", "lock_mode"),
    "sla": ("copy_age", "notify"),
    "transform": (),
}
"""What of a jobs file counts in a test, and what of such a table does not: what is not named lies elsewhere,
runs elsewhere, or alerts people."""
_QUICK = {"lease": {"beat": "100ms", "ttl": "2s"}, "stop": {"force_after": "5s"}}
_SUBMIT = """#!/bin/sh
while [ "$#" -gt 0 ] && [ "${{1%.py}}" = "$1" ]; do shift; done
case "$1" in
*/run_query.py) shift; exec "{python}" -P -m streambank_spark.stand_in.driver "{told}" "$@" ;;
esac
echo "java.lang.UnsupportedOperationException: a fake job has no Spark, which $1 needs" >&2
exit 1
"""


class FakeJobs:
    """Declared jobs, in a directory that holds all they have; a context manager.

    Within it each task, sensor and trigger of this process finds these jobs by their names, whatever jobs
    file, declaration or connection its DAG has for them, and `STREAMBANK_JOBS` names them to other processes.
    At its end no driver is left.

    Args:
        directory: Where everything lies; it is made where it is missing.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory).resolve()
        self.jobs_file = self.directory / "streaming_jobs.toml"
        self._declared: dict[str, dict[str, Any]] = {}
        self._context = ExitStack()

    def __enter__(self) -> FakeJobs:
        submit = self.directory / "spark" / "bin" / "spark-submit"
        for folder in (submit.parent, self.told):
            folder.mkdir(parents=True, exist_ok=True)
        submit.write_text(_SUBMIT.format(python=sys.executable, told=self.told), encoding="utf-8")
        submit.chmod(0o755)
        (self.directory / "application.py").write_text("import pyspark\n", encoding="utf-8")
        self._write()
        self._context.callback(self.end_drivers)
        self._context.enter_context(_found_everywhere(str(self.jobs_file), f"{self.directory}/repository"))
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    @property
    def told(self) -> Path:
        """Where drivers read what they are told."""
        return self.directory / "told"

    def declare(self, name: str, **fields: Any) -> FakeJob:
        """Declare a job, or declare it anew.

        Args:
            fields: Fields of the jobs file, such as `savepoint={"schedule": "@hourly"}`. Where the job lies
                is not needed; relative paths begin in the directory.

        Raises:
            InputError: A field is wrong (code `bad-declaration`).
        """
        places = {
            "application": "application.py",
            "checkpoint": f"checkpoints/{name}",
            "spark_home": "spark",
            "master": "local[1]",
        }
        self._declared[name] = {**places, **_QUICK, **fields}
        self._write()
        job = FakeJob(self, name)
        assert job.job.name == name
        return job

    def declare_as(self, jobs_file: str | os.PathLike[str]) -> None:
        """Declare the jobs of a jobs file of yours, with its policies and limits, but in this directory.

        Nobody is alerted who is named there.

        Raises:
            InputError: It is not valid TOML (code `bad-declaration`), or a field is wrong.
        """
        try:
            said = parse_toml(Path(jobs_file).read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(
                f"{jobs_file} is not valid TOML: {error}.",
                code="bad-declaration",
                hint="Repair that line.",
            ) from error
        for name, own in said.get("jobs", {}).items():
            self.declare(name, **_kept(merge(said.get("defaults", {}), own)))

    def __getitem__(self, name: str) -> FakeJob:
        """A job that was declared."""
        if name not in self._declared:
            raise KeyError(f"no job {name} is declared here, but {sorted(self._declared)}")
        return FakeJob(self, name)

    def end_drivers(self) -> None:
        """End every driver as kill -9 does, and see it gone."""
        _await(lambda: not self._ended_drivers(), "drivers are gone")

    def _ended_drivers(self) -> list[ProcessId]:
        inside = f"{self.directory}/"
        found = [one for one, said in own_processes("--launch") if any(inside in each for each in said)]
        for one in found:
            send_signal(one, signal.SIGKILL)
            with suppress(ChildProcessError):  # it is nobody's zombie where a task of this process started it
                os.waitpid(one.pid, 0)
        return found

    def _write(self) -> None:
        said = {"repository": "repository", "jobs": self._declared}
        text = "".join(f"{name} = {_toml(value)}\n" for name, value in said.items())
        self.jobs_file.write_text(text, encoding="utf-8")


class FakeJob:
    """One of them: what a test asks of it and tells its driver, which hears it before its next batch."""

    def __init__(self, jobs: FakeJobs, name: str) -> None:
        self.jobs = jobs
        self.name = name

    @property
    def job(self) -> Job:
        """Its declaration."""
        return load_jobs(self.jobs.jobs_file, variables=AirflowValues()).job(self.name)

    @property
    def records(self) -> JobControl:
        """What is recorded of it: events, generations, its lease, whether it is meant to run."""
        return self.job.records()

    @property
    def state(self) -> str:
        """As `StreamingJobStatusSensor` calls it: `running`, `stopped`, `failed`, ..."""
        return job_status(self.job).state

    @property
    def batch(self) -> int:
        """The newest committed batch of its only query, or of its first one; -1 for none."""
        query = next(iter(self.job.queries.items()))
        found = self.records.generation(query[0])
        commits = Path((query[1] if found is None else found.location).removeprefix("file://")) / "commits"
        return max((int(one.name) for one in commits.glob("[0-9]*")), default=-1)

    @property
    def savepoints(self) -> list[SavepointSummary]:
        """Its savepoints, the oldest first."""
        found = self.job.open_repository(create=True).manifests(self.name)
        return sorted(found, key=lambda one: one.savepoint)

    @property
    def application_args(self) -> tuple[str, ...]:
        """With what its newest driver was launched, which a fake one does not read."""
        view = self.records.lease.view()
        spec = spec_of(self.records, view.launch_id or "") if view is not None else None
        return () if spec is None else spec.args

    def start(self) -> None:
        """Start it, as StartStreamingJobOperator does; return when a batch is committed."""
        start_job(self.job, by=_BY)
        self.wait_for_batch(0)

    def stop(self) -> None:
        """Stop it at a batch boundary."""
        stop_job(self.job, by=_BY)

    def kill(self) -> None:
        """Kill its driver, as a lost machine does; nobody has asked for a stop."""
        self.jobs.end_drivers()

    def wait_for_batch(self, batch: int) -> None:
        """Wait until a batch is committed.

        Raises:
            TimeoutError: It is not within half a minute.
        """
        _await(lambda: self.batch >= batch, f"batch {batch} of {self.name} is committed")

    def advance(self, to: datetime) -> None:
        """Let event time come this far with the next batch; it never goes back."""
        self._tell(watermark_ms=round(to.timestamp() * 1000))

    def takes(self, seconds: float) -> None:
        """Let a batch take so long, in place of a tenth of a second."""
        self._tell(period_s=seconds)

    def has_state(self, rows: int) -> None:
        """Let it report so many rows of state, for limits of an SLA."""
        self._tell(state_rows=rows)

    def cannot_start(self, error: str) -> None:
        """Let each driver end with an error, such as `ValueError: no topic`, before its first batch."""
        self._tell(cannot_start=error)

    def dies(self, after: int = 0, saying: str = "java.lang.OutOfMemoryError: Java heap space") -> None:
        """Let each driver die after so many batches, and what its log says last."""
        self._tell(dies_after=after, last_words=saying)

    def hangs(self, after: int = 0) -> None:
        """Let each driver commit no more after so many batches, while it lives."""
        self._tell(hangs_after=after, last_words="a batch hangs")

    def differs(self) -> None:
        """Let the copy of a drill or a rehearsal compute something else than the job."""
        self._tell(differs=True)

    def behaves(self) -> None:
        """Take back all that it was told, but for event time."""
        self._write({key: value for key, value in self._said().items() if key == "watermark_ms"})

    def _tell(self, **what: float | str) -> None:
        self._write({**self._said(), **what})

    def _said(self) -> dict[str, Any]:
        return dict(loads(self._file.read_text(encoding="utf-8"))) if self._file.exists() else {}

    def _write(self, said: Mapping[str, Any]) -> None:
        new = self._file.with_suffix(".new")  # the driver must not read half of it
        new.write_text(json.dumps(said), encoding="utf-8")
        new.replace(self._file)

    @property
    def _file(self) -> Path:
        return self.jobs.told / f"{self.name}.json"


def _kept(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that count in a test."""

    def inside(value: Any, left_out: tuple[str, ...]) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: one for name, one in value.items() if name not in left_out}

    return {name: inside(fields[name], left_out) for name, left_out in _KEPT.items() if name in fields}


@contextmanager
def _found_everywhere(jobs_file: str, repository: str) -> Iterator[None]:
    said = Settings(repository, jobs_file)
    with ExitStack() as context:
        for owner, name in ((declared, "find_settings"), (streambank, "afind_settings")):
            context.enter_context(patch.object(owner, name, return_value=said))  # of whatever connection
        for name, method in {
            "read": lambda self: remembered_jobs(jobs_file, loop=self._loop),
            "_named_file": lambda self: jobs_file,
        }.items():
            context.enter_context(patch.object(DeclaredJobs, name, method))
        before, os.environ[JOBS_VARIABLE] = os.environ.get(JOBS_VARIABLE), jobs_file
        try:
            yield
        finally:
            os.environ.pop(JOBS_VARIABLE, None)
            os.environ.update({} if before is None else {JOBS_VARIABLE: before})


def _await(true: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        time.sleep(0.02)


def _toml(value: Any) -> str:
    """A value as TOML writes it; texts, numbers, lists and booleans are written as in JSON."""
    if isinstance(value, Mapping):
        given = (f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items() if one is not None)
        return "{" + ", ".join(given) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value) if isinstance(value, datetime) else json.dumps(plain(value), ensure_ascii=False)
