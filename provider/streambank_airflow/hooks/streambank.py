"""The hook: the one place of the Airflow face that opens repositories and jobs and calls the engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar, get_args

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from streambank.errors import InputError, NotFoundError, RefusedError, StreambankError
from streambank.job.declaration import Job, load_jobs
from streambank.job.generations import MAIN
from streambank.job.launcher import Handle, LocalLauncher
from streambank.job.savepoint import savepoint_job
from streambank.job.start import StartResult, start_job
from streambank.job.status import job_status
from streambank.job.stop import StopResult, stop_job
from streambank.recovery.plan import RestorePlan
from streambank.recovery.restore import plan_restore, restore
from streambank.recovery.sinks import Mode, SinkChoice
from streambank.savepoint.repository import Repository
from streambank.savepoint.take import take
from streambank.savepoint.verify import verify
from streambank.sinks.file_sink import FileSinkCapture
from streambank.storage import open_store
from streambank.storage.names import split_job
from streambank_airflow.settings import Settings
from streambank_airflow.watching import JobWatcher

DEFAULT_CONN_ID = "streambank_default"
JOBS_VARIABLE = "STREAMBANK_JOBS"
HELD = "lease-held"
STOP_RUNNING = "Set stop_running, if it may be stopped for this."
LATEST = "latest"
"""How the newest savepoint, good or not, is called."""


class StreambankHook(BaseHook):
    """Where jobs are declared and savepoints kept.

    What a jobs file declares comes first; the connection says what is missing: which jobs file, and for
    queries that no file declares which repository. The default connection need not exist.

    Args:
        streambank_conn_id: The connection.
        jobs_file: The jobs file; None for the connection's, and failing that the one that the environment
            variable STREAMBANK_JOBS names.
        settings: What the connection says, where the caller has read it already.
    """

    conn_name_attr = "streambank_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "streambank"
    hook_name = "Streambank"
    extra_fields: ClassVar[tuple[str, ...]] = tuple(field.name for field in fields(Settings))

    def __init__(
        self,
        streambank_conn_id: str = DEFAULT_CONN_ID,
        jobs_file: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__()
        self.streambank_conn_id = streambank_conn_id
        self._jobs_file = jobs_file
        if settings is not None:
            self.settings = settings

    @classmethod
    async def aopen(cls, streambank_conn_id: str, jobs_file: str | None = None) -> StreambankHook:
        """A hook for the triggerer, where a connection must not be asked for synchronously."""
        if jobs_file is not None:
            return cls(streambank_conn_id, jobs_file, Settings())
        try:
            connection = await cls.aget_connection(streambank_conn_id)
        except AirflowNotFoundException:
            settings = _without_connection(streambank_conn_id)
        else:
            settings = Settings.from_extra(streambank_conn_id, connection.extra_dejson)
        return cls(streambank_conn_id, jobs_file, settings)

    @cached_property
    def settings(self) -> Settings:
        """What the connection says.

        Raises:
            InputError: It does not exist and is not the default one (code `no-connection`), or says something
                wrong.
        """
        try:
            connection = self.get_connection(self.streambank_conn_id)
        except AirflowNotFoundException:
            return _without_connection(self.streambank_conn_id)
        return Settings.from_extra(self.streambank_conn_id, connection.extra_dejson)

    @property
    def jobs_file(self) -> str:
        """The jobs file that counts.

        Raises:
            InputError: Nobody names one (code `no-declaration`).
        """
        found = self._jobs_file or self.settings.jobs_file or os.environ.get(JOBS_VARIABLE)
        if not found:
            raise InputError(
                "No jobs file is named.",
                code="no-declaration",
                hint=f"Give jobs_file=, name it in the connection {self.streambank_conn_id}, "
                f"or set {JOBS_VARIABLE}.",
            )
        return found

    def get_conn(self) -> Repository:
        """The repository, as the connection names it.

        Raises:
            InputError: It names none (code `no-repository-named`).
            NotFoundError: There is no repository (code `no-repository`).
        """
        if self.settings.repository is None:
            raise InputError(
                f"The connection {self.streambank_conn_id} names no repository.",
                code="no-repository-named",
                hint="Fill in its field Repository.",
            )
        return Repository.open(open_store(self.settings.repository))

    def test_connection(self) -> tuple[bool, str]:
        """Whether what the connection names can be opened, and what was found: for Airflow's button."""
        try:
            said = []
            if self.settings.jobs_file is not None:
                said.append(f"{len(load_jobs(self.settings.jobs_file).jobs)} jobs are declared")
            if self.settings.repository is not None or not said:
                said.append(f"the repository {self.get_conn().id} is there")
        except StreambankError as error:
            return False, f"{error.message} {error.hint}".strip()
        return True, " and ".join(said).capitalize() + "."

    def declared(self, ref: str) -> tuple[Job, str | None]:
        """A declared job, and which query of it is meant (None for all, or the only one).

        Args:
            ref: `job` or `job/query`.

        Raises:
            InputError: The name or the jobs file is wrong (code `no-such-query` for an unknown query).
            NotFoundError: No such job is declared (code `no-such-job`).
        """
        name, query = split_job(ref)
        job = load_jobs(self.jobs_file).job(name)
        if query is not None and query not in job.queries:
            raise InputError(
                f"Job {name} has no query {query!r}.",
                code="no-such-query",
                hint=f"It has: {', '.join(job.queries)}.",
            )
        return job, query

    def watcher(self, ref: str) -> JobWatcher:
        """What looks at a job again and again."""
        return JobWatcher(*self.declared(ref))

    # The engine's verbs, on declared jobs.

    def start(
        self, ref: str, *, obey_desired: bool, wait: bool, note: str, by: Mapping[str, str]
    ) -> StartResult:
        """Make sure that a driver of a job runs: `streambank.job.start.start_job`."""
        job, _ = self.declared(ref)
        return start_job(job, by=by, why=note, obey_desired=obey_desired, wait=wait)

    def obeys(self, ref: str, asked_at: datetime | None, run_id: str | None = None) -> bool:
        """Whether whoever asked for a start at a moment has to obey the desired state as it is now.

        Args:
            ref: The job.
            asked_at: When a person asked; None for a schedule, which never undoes what a person has said.
            run_id: The DAG run that asks: a stop of its own, as a restore has one, does not bind it.

        Returns:
            False only where the job is meant to be stopped, and that was said before the start was asked for.
            A run that waited in the queue while somebody stopped the job is outdated, and so is a task that
            is tried again.
        """
        desired = self.declared(ref)[0].records().desired()
        if desired is None or desired.state != "stopped" or asked_at is None:
            return True
        own = run_id is not None and desired.by.get("run_id") == run_id
        return desired.at >= asked_at and not own

    def stop(
        self,
        ref: str,
        *,
        savepoint: bool,
        drain: bool,
        force_after_s: float | None,
        note: str,
        by: Mapping[str, str],
    ) -> StopResult:
        """Stop a job, and keep it stopped: `streambank.job.stop.stop_job`."""
        job, _ = self.declared(ref)
        return stop_job(
            job,
            by=by,
            why=note,
            note=note,
            savepoint=savepoint,
            drain=drain,
            force_after_s=force_after_s,
        )

    def require_stopped(self, ref: str) -> None:
        """Make sure that no driver of a job lives.

        Raises:
            RefusedError: One does (code `job-running`), or its lease cannot be judged.
        """
        job, _ = self.declared(ref)
        records = job.records()
        view = records.lease.settle()
        if view is not None and not view.free:
            raise RefusedError(
                f"Job {job.name} is held by {view.describe()} ({view.state}: {view.why}).",
                code="job-running",
                hint=STOP_RUNNING,
            )

    def driver_log(self, ref: str, lines: int) -> tuple[str | None, list[str]]:
        """The path of the newest driver's log, and its last lines where this machine has it."""
        job, _ = self.declared(ref)
        log = job_status(job).log
        if log is None:
            return None, []
        return log, LocalLauncher().log_lines(Handle("", (), log), lines)

    # Savepoints, of declared jobs and of any other query.

    def repository(self, ref: str, *, create: bool = False) -> Repository:
        """The repository of a job: as its declaration says, else as the connection says.

        Args:
            ref: `job` or `job/query`.
            create: Make it where there is none.

        Raises:
            InputError: Nobody names one (code `no-repository-named`).
            NotFoundError: There is no repository (code `no-repository`).
        """
        job = self._if_declared(ref)
        location = job.repository if job is not None else self.settings.repository
        if location is None:
            raise InputError(
                f"Nobody says in which repository the savepoints of {ref} are.",
                code="no-repository-named",
                hint="Declare the job, or fill in the field Repository of the connection "
                f"{self.streambank_conn_id}.",
            )
        return Repository.open(open_store(location), create=create)

    def _if_declared(self, ref: str) -> Job | None:
        if not (self._jobs_file or self.settings.jobs_file or os.environ.get(JOBS_VARIABLE)):
            return None
        name, _ = split_job(ref)
        return load_jobs(self.jobs_file).jobs.get(name)

    def take(
        self,
        ref: str,
        *,
        checkpoint: str | None,
        file_sinks: Sequence[str],
        batch: int | None,
        closure: str | None,
        pin: bool,
        new_query: bool,
        note: str,
        by: Mapping[str, str],
    ) -> dict[str, Any]:
        """Take a savepoint of one query.

        Args:
            ref: `job` or `job/query`.
            checkpoint: The directory of a query that is not declared; None for a declared one.
            file_sinks: The output directories of a query that is not declared.
            batch: None for the newest committed one.
            closure: `safe` or `minimal`; None for the declared one.
            pin: Keep it until somebody unpins it.
            new_query: Accept another query under this name.
            note: What to remember about it.
            by: Who asks.

        Raises:
            InputError: A job of several queries was named without the query (code `which-query`).
            StreambankError: Whatever a take raises.
        """
        if checkpoint is not None:
            return take(
                open_store(checkpoint),
                self.repository(ref, create=True),
                ref,
                batch=batch,
                closure="minimal" if closure == "minimal" else "safe",
                sinks=[FileSinkCapture(sink) for sink in file_sinks],
                note=note,
                pin=pin,
                new_query=new_query,
                taken_by=by,
            ).to_dict()
        job, query = self.declared(ref)
        if query is None and len(job.queries) > 1:
            raise InputError(
                f"Job {job.name} has several queries; each has savepoints of its own.",
                code="which-query",
                hint=f"Name one: {', '.join(f'{job.name}/{name}' for name in job.queries)}.",
            )
        taken = savepoint_job(
            job,
            by=by,
            query=query,
            batch=batch,
            closure=None if closure is None else "minimal" if closure == "minimal" else "safe",
            note=note,
            pin=pin,
            new_query=new_query,
        )
        (result,) = taken.savepoints.values()
        return result.to_dict()

    def verify(
        self, ref: str, savepoint: str, *, level: str, by: Mapping[str, str]
    ) -> tuple[dict[str, Any], list[str]]:
        """Verify a savepoint, and leave the result beside it.

        Args:
            ref: `job` or `job/query`.
            savepoint: Its id, the beginning of one, or `latest`.
            level: `quick` or `full`.
            by: Who asks.

        Returns:
            The report, flat, with the number of findings; and the findings as sentences.

        Raises:
            NotFoundError: There is no such savepoint.
        """
        repository = self.repository(ref)
        if savepoint == LATEST:
            listed = [one for one in repository.manifests(ref) if one.job == ref]
            if not listed:
                raise NotFoundError(
                    f"There is no savepoint of {ref} yet.", code="no-such-savepoint", hint="Take one first."
                )
            job, found = ref, listed[-1].savepoint
        else:
            job, found = repository.find(savepoint, ref)
        report = verify(repository, job, found, "full" if level == "full" else "quick", by=by)
        said = [f"{one.file}: {one.cause} {one.effect}" for one in report.findings]
        return {**report.to_dict(), "findings": len(said)}, said

    def plan_restore(
        self, ref: str, savepoint: str, *, into: str | None, sink: str, mode: str, may_stop: bool
    ) -> RestorePlan:
        """What a restore would do; changes nothing.

        Args:
            ref: `job` or `job/query`.
            savepoint: Its id, the beginning of one, or `latest-good`.
            into: An empty directory; None for the job's next generation.
            sink: `refuse`, `rollback` or `accept`.
            mode: `no-claim`, `claim` or `fork`.
            may_stop: A driver that lives is no obstacle, since the caller will stop it first.

        Raises:
            RefusedError: A driver lives (code `job-running`), or output would be lost or repeated.
            StreambankError: Whatever else speaks against it.
        """
        plan = plan_restore(
            self.repository(ref), savepoint, job=ref, **_choices(sink, mode), **self._target(ref, into)
        )
        for refusal in plan.refusals:
            if refusal.code != HELD:
                raise refusal
            if not may_stop:
                raise RefusedError(refusal.message, code="job-running", hint=STOP_RUNNING)
        return plan

    def restore(
        self,
        ref: str,
        savepoint: str,
        *,
        into: str | None,
        sink: str,
        mode: str,
        link: bool,
        note: str,
        by: Mapping[str, str],
    ) -> dict[str, Any]:
        """Restore a savepoint; see `plan_restore` and `streambank.recovery.restore.restore`."""
        report = restore(
            self.repository(ref),
            savepoint,
            job=ref,
            link=link,
            by={**by, "reason": note} if note else by,
            **_choices(sink, mode),
            **self._target(ref, into),
        )
        return report.to_dict()

    def _target(self, ref: str, into: str | None) -> dict[str, Any]:
        job = self._if_declared(ref)
        if into is not None:
            return {"into": open_store(into), "control": job.records() if job is not None else None}
        declared, query = self.declared(ref)
        return {"generation": declared.records(), "checkpoint": declared.queries[query or MAIN]}


def _choices(sink: str, mode: str) -> dict[str, Any]:
    """The two choices of a restore.

    Raises:
        InputError: One of them is no choice there is.
    """
    for option, value, known in (("sink", sink, SinkChoice), ("mode", mode, Mode)):
        if value not in get_args(known):
            raise InputError(
                f"{option} is to be one of {', '.join(get_args(known))}, not {value!r}.", code="bad-option"
            )
    return {"sink": sink, "mode": mode}


def _without_connection(conn_id: str) -> Settings:
    if conn_id != DEFAULT_CONN_ID:
        raise InputError(
            f"There is no connection {conn_id}.",
            code="no-connection",
            hint="Create it with the type Streambank, or leave the default.",
        )
    return Settings()
