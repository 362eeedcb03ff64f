"""The hook: the one place of the Airflow face that opens repositories and jobs and calls the engine.

The engine's modules for the verbs are loaded when they are needed, since the DAG processor imports this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError, RefusedError
from streambank.core.names import MAIN
from streambank.storage import open_store
from streambank_airflow.choices import restore_choices
from streambank_airflow.hooks.declared import DEFAULT_CONN_ID, connected
from streambank_airflow.hooks.state import LATEST, StateHook

if TYPE_CHECKING:
    from streambank.job.restart import RestartAsked, RestartResult
    from streambank.job.start import StartResult
    from streambank.job.stop import StopResult
    from streambank.job.stop_request import StopAsked
    from streambank.recovery.plan import RestorePlan
    from streambank.work.executor import Executor

__all__ = ["DEFAULT_CONN_ID", "StreambankHook"]

STOP_RUNNING = "Set stop_running if it may be stopped for this."


class StreambankHook(StateHook):
    """The engine's verbs, on jobs that are found as `DeclarationHook` says."""

    # The engine's verbs, on declared jobs.

    @connected
    def start(
        self,
        ref: str,
        *,
        obey_desired: bool,
        wait: bool,
        note: str,
        by: Mapping[str, str],
        fresh_start: bool = False,
    ) -> StartResult:
        """Make sure that a driver of a job runs: `streambank.job.start.start_job`."""
        from streambank.job.start import start_job

        job, _ = self.declared(ref)
        return start_job(
            job,
            by=by,
            why=note,
            obey_desired=obey_desired,
            wait=wait,
            fresh_start=fresh_start,
        )

    @connected
    def obeys(self, ref: str, asked_at: datetime | None, run_id: str | None = None) -> bool:
        """Whether whoever asked for a start at a moment has to obey the desired state as it is now.

        Args:
            ref: The job.
            asked_at: When a person asked; None for a schedule, which never undoes what a person has said.
            run_id: The DAG run that asks: a stop of its own, as a restore has one, does not bind it, nor does
                it bind a schedule.

        Returns:
            False only where the job is meant to be stopped, and that was said before the start was asked for.
            A run that waited in the queue while somebody stopped the job is outdated, and so is a task that
            is tried again.
        """
        desired = self.declared(ref)[0].records().desired()
        if desired is None or desired.state != "stopped":
            return True
        own = run_id is not None and desired.by.get("run_id") == run_id
        return not own and (asked_at is None or desired.at >= asked_at)

    @connected
    def ask_to_stop(
        self,
        ref: str,
        *,
        drain: bool,
        force_after_s: float | None,
        note: str,
        by: Mapping[str, str],
        asker: str | None = None,
    ) -> StopAsked:
        """Ask a job's driver to stop, and return at once: `streambank.job.stop.ask_to_stop`."""
        from streambank.job.stop import ask_to_stop

        job, _ = self.declared(ref)
        return ask_to_stop(job, by=by, why=note, drain=drain, force_after_s=force_after_s, asker=asker)

    @connected
    def stop(
        self,
        ref: str,
        *,
        savepoint: bool,
        drain: bool,
        force_after_s: float | None,
        note: str,
        by: Mapping[str, str],
        asked: StopAsked | None = None,
    ) -> StopResult:
        """Stop a job, and keep it stopped: `streambank.job.stop.stop_job`."""
        from streambank.job.stop import stop_job

        job, _ = self.declared(ref)
        return stop_job(
            job,
            by=by,
            why=note,
            note=note,
            savepoint=savepoint,
            drain=drain,
            force_after_s=force_after_s,
            asked=asked,
        )

    @connected
    def ask_to_restart(
        self, ref: str, *, force_after_s: float | None, note: str, by: Mapping[str, str], asker: str
    ) -> RestartAsked | None:
        """Ask a job's driver to make room for another: `streambank.job.restart.ask_to_restart`."""
        from streambank.job.restart import ask_to_restart

        job, _ = self.declared(ref)
        return ask_to_restart(job, by=by, why=note, force_after_s=force_after_s, asker=asker)

    @connected
    def restart(
        self,
        ref: str,
        *,
        asked: RestartAsked | None,
        asker: str,
        force_after_s: float | None,
        wait: bool,
        note: str,
        by: Mapping[str, str],
    ) -> RestartResult:
        """Stop a job and start it again in one operation: `streambank.job.restart.restart_job`."""
        from streambank.job.restart import restart_job

        job, _ = self.declared(ref)
        return restart_job(job, asked, by=by, why=note, force_after_s=force_after_s, wait=wait, asker=asker)

    @connected
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

    @connected
    def is_stopped(self, ref: str) -> bool:
        """Whether a job is meant to be stopped, and no driver of it is known to live."""
        job, _ = self.declared(ref)
        records = job.records()
        desired, view = records.desired(), records.lease.view()
        return desired is not None and desired.state == "stopped" and (view is None or view.state != "live")

    @connected
    def driver_log(self, ref: str, lines: int) -> tuple[str | None, list[str]]:
        """Where the newest driver's log is, and its last lines where they can be read from here."""
        from streambank.driver.launchers.choose import launcher_for
        from streambank.job.status import job_status

        job, _ = self.declared(ref)
        status = job_status(job)
        where = status.log or status.tracking or status.submission
        if where is None or status.driver is None:
            return None, []
        return where, launcher_for(job).log_lines(status.driver, lines)

    # Savepoints, of declared jobs and of any other query.

    @connected
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
        kafka: str | None = None,
        executor: Executor | None = None,
    ) -> dict[str, Any]:
        """Take a savepoint of one query.

        Of a job that has several, the result says that their savepoints are not mutually consistent.

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
            kafka: Servers of the Kafka of a query that is not declared.
            executor: Who copies; threads of this process where nobody is named.

        Raises:
            InputError: A job of several queries was named without the query (code `which-query`).
            StreambankError: Whatever a take raises.
        """
        from streambank.job.savepoint import savepoint_job
        from streambank.kafka.recording import SourceRecorder
        from streambank.kafka.settings import Brokers, KafkaConnection
        from streambank.savepoint.take import TakeRequest, known_closure, take
        from streambank.sinks.file.capture import FileSinkCapture
        from streambank.work.executor import Pace

        if checkpoint is not None:
            return take(
                TakeRequest(
                    open_store(checkpoint),
                    self.repository(ref, create=True, checkpoint=checkpoint),
                    ref,
                    batch=batch,
                    closure=known_closure("safe" if closure is None else closure),
                    sinks=[FileSinkCapture(sink) for sink in file_sinks],
                    sources=SourceRecorder(Brokers(KafkaConnection(kafka))),
                    note=note,
                    pin=pin,
                    new_query=new_query,
                    taken_by=by,
                ),
                pace=Pace(executor=executor),
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
            closure=closure,
            note=note,
            pin=pin,
            new_query=new_query,
            pace=Pace(executor=executor),
        )
        (result,) = taken.savepoints.values()
        return result.to_dict() | ({"mutually_consistent": False} if len(job.queries) > 1 else {})

    @connected
    def verify(
        self,
        ref: str,
        savepoint: str,
        *,
        level: str,
        by: Mapping[str, str],
        executor: Executor | None = None,
    ) -> tuple[dict[str, Any], list[str]]:
        """Verify a savepoint, and leave the result beside it.

        Args:
            ref: `job` or `job/query`.
            savepoint: Its id, the beginning of one, or `latest`.
            level: `quick` or `full`.
            by: Who asks.
            executor: Who hashes; threads of this process where nobody is named.

        Returns:
            The report, flat, with the number of findings; and the findings as sentences.

        Raises:
            InputError: The level is neither (code `bad-choice`).
            NotFoundError: There is no such savepoint.
        """
        from streambank.savepoint.verify import known_level, verify
        from streambank.work.executor import Pace

        repository = self.repository(ref)
        job, found = repository.find(self.newest(ref) if savepoint == LATEST else savepoint, ref)
        report = verify(repository, job, found, known_level(level), by=by, pace=Pace(executor=executor))
        wrong = [one for one in report.findings if one.severity != "info"]
        said = [f"{one.file}: {one.cause} {one.effect}" for one in wrong]
        return {**report.to_dict(), "findings": len(said)}, said

    @connected
    def plan_restore(
        self,
        ref: str,
        savepoint: str,
        *,
        into: str | None,
        sink: str,
        mode: str,
        may_stop: bool,
        new_sinks: Mapping[str, str] | None = None,
        source: str = "refuse",
        kafka: str | None = None,
        executor: Executor | None = None,
        offer: bool = False,
    ) -> RestorePlan:
        """What a restore would do; changes nothing.

        Args:
            ref: `job` or `job/query`.
            savepoint: Its id, the beginning of one, or `latest-good`.
            into: An empty directory; None for the job's next generation.
            sink: `refuse`, `rollback` or `accept`.
            mode: `no-claim`, `claim` or `fork`.
            may_stop: A driver that lives is no obstacle, since the caller will stop it first.
            new_sinks: New output directories instead of file sinks of the savepoint.
            source: `refuse` or `accept`, where Kafka has not all of the input any more.
            kafka: Kafka's servers, where they are not those that the savepoint or the declaration names.
            executor: Who hashes, for `latest-good`; threads of this process where nobody is named.
            offer: Raise only what no choice resolves: the caller lets a person choose (approval.py).

        Raises:
            RefusedError: A driver lives (code `job-running`), or output would be lost or repeated.
            StreambankError: Whatever else speaks against it.
        """
        from streambank.recovery.approval import HELD, obstacles
        from streambank.recovery.preconditions import RestoreRequest
        from streambank.recovery.restore import plan_restore
        from streambank.work.executor import Pace

        plan = plan_restore(
            RestoreRequest(
                self.repository(ref),
                savepoint,
                job=ref,
                new_sinks=new_sinks or {},
                **restore_choices(sink, mode, source),
                **self._target(ref, into, kafka),
            ),
            pace=Pace(executor=executor),
        )
        for refusal in obstacles(plan) if offer else plan.refusals:
            if refusal.code != HELD:
                raise refusal
            if not may_stop:
                raise RefusedError(refusal.message, code="job-running", hint=STOP_RUNNING)
        return plan

    @connected
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
        new_sinks: Mapping[str, str] | None = None,
        source: str = "refuse",
        unmoved: bool = False,
        kafka: str | None = None,
        executor: Executor | None = None,
    ) -> dict[str, Any]:
        """Restore a savepoint; see `plan_restore` and `streambank.recovery.restore.restore`."""
        from streambank.recovery.preconditions import RestoreRequest
        from streambank.recovery.restore import restore
        from streambank.work.executor import Pace

        report = restore(
            RestoreRequest(
                self.repository(ref),
                savepoint,
                job=ref,
                link=link,
                by={**by, "reason": note} if note else by,
                new_sinks=new_sinks or {},
                unmoved=unmoved,
                **restore_choices(sink, mode, source),
                **self._target(ref, into, kafka),
            ),
            pace=Pace(executor=executor),
        )
        return report.to_dict()

    @connected
    def restored_by(self, ref: str, since: datetime) -> str | None:
        """Who has made a savepoint the job's next generation since a moment: a DAG run, or a user.

        Args:
            ref: `job`, for any of its queries, or `job/query`.
            since: Generations that are older do not count.

        Returns:
            The id of the DAG run, or the user; None where nobody has.
        """
        job, query = self.declared(ref)
        records = job.records()
        for name in (query,) if query is not None else job.query_names:
            current = records.generation(name)
            if current is not None and current.from_savepoint is not None and current.made_at >= since:
                return current.by.get("run_id") or current.by.get("user") or "somebody"
        return None

    def _target(self, ref: str, into: str | None, servers: str | None) -> dict[str, Any]:
        from streambank.kafka.settings import Brokers, KafkaConnection

        job = self._if_declared(ref)
        connection = job.kafka if job is not None else KafkaConnection()
        kafka = {"kafka": Brokers(connection.at(servers))}
        if into is not None:
            return {"into": open_store(into), "control": job.records() if job is not None else None, **kafka}
        declared, query = self.declared(ref)
        return {"generation": declared.records(), "checkpoint": declared.queries[query or MAIN], **kafka}
