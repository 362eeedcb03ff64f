"""The verbs of a job's life: start it, stop it, restart it, and ask how it is.

The engine's modules for them are loaded when they are needed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from streambank.control.processes import is_same_run
from streambank.core.errors import RefusedError, StorageError
from streambank.core.names import ASKER
from streambank.core.options import values_of
from streambank.core.verb_options import RestartOptions, StartOptions, StopOptions
from streambank.job.restart import RestartAsked, RestartResult
from streambank.job.stop_request import StopAsked
from streambank_airflow.caller import asked_at, running
from streambank_airflow.hints import hint_for
from streambank_airflow.hooks.declared import DeclaredJobs
from streambank_airflow.hooks.verbs import CALLER, Asked, asking, connected

if TYPE_CHECKING:
    from streambank.core.finding import Finding
    from streambank.driver.failure import DriverFailure
    from streambank.job.history import Happening
    from streambank.job.start import StartResult
    from streambank.job.status import JobStatus
    from streambank.job.stop import StopResult

STOP_RUNNING = "Set stop_running if it may be stopped for this."
LAST_LINES = 15
"""How many of a driver's last lines are shown where there is no exception among them."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DriverLog:
    """The log of a driver.

    Attributes:
        where: Its path on the driver's host, or its page in a cluster; None where it is not known.
        failure: What went wrong last in it. Of a driver that has not failed it means nothing.
        lines: Its last lines, without secrets; empty where they cannot be read from here.
    """

    where: str | None = None
    failure: DriverFailure | None = None
    lines: tuple[str, ...] = ()


@dataclass(kw_only=True)
class AskedStart(StartOptions, Asked):
    """How a start is asked for.

    Attributes:
        obey_desired: Start nothing while the job is meant to be stopped; by default a task does so where
            somebody has said that since its run was asked for, and a schedule always.
        wait: Return only when each query has committed a batch, or found no data; else when a driver is up.
        timeout_s: How long to wait, in seconds; the declared time when left out.
        application_args: Arguments of the application in place of the declared ones, for this launch.
    """

    obey_desired: bool | None = None
    wait: bool = True
    timeout_s: float | None = None
    application_args: Sequence[str] | None = None


@dataclass(kw_only=True)
class AskedStop(StopOptions, Asked):
    """How a stop is asked for.

    Attributes:
        asked: What `ask_to_stop` returned: this finishes that stop.
    """

    asked: StopAsked | None = None


@dataclass(kw_only=True)
class AskedRestart(RestartOptions, Asked):
    """How a restart is asked for.

    Attributes:
        asked: What `ask_to_restart` returned: this finishes that restart.
        wait: As for a start.
        application_args: As for a start.
    """

    asked: RestartAsked | None = None
    wait: bool = True
    application_args: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class JobVerbs:
    """The verbs of a declared job's life: `hook.jobs`."""

    declared: DeclaredJobs

    @connected
    def status(self, ref: str) -> JobStatus:
        """How a job is doing, as `streambank job status` shows it. Changes nothing."""
        from streambank.job.status import job_status

        return job_status(self.declared.job(ref))

    @connected
    def history(self, ref: str, *, last: int = 30) -> list[Happening]:
        """What happened to a job, oldest first: starts, stops, failures, savepoints, restores.

        Args:
            last: How many entries at most.
        """
        from streambank.job.history import job_history

        return job_history(self.declared.job(ref), last)

    @asking(AskedStart)
    def start(self, ref: str, asked: AskedStart) -> StartResult:
        """Make sure that a driver of a job runs: `streambank.job.start.start_job`."""
        from streambank.job.start import start_job

        obey, context = asked.obey_desired, running()
        if obey is None:
            obey = context is not None and self.obeys(ref, asked_at(context), by=asked.by)
        return start_job(
            self.declared.job(ref),
            **_who(asked),
            obey_desired=obey,
            wait=asked.wait,
            timeout_s=asked.timeout_s,
            fresh_start=asked.fresh_start,
            args=asked.application_args,
        )

    @connected
    def obeys(self, ref: str, asked_at: datetime | None, *, by: Mapping[str, str] = CALLER) -> bool:
        """Whether whoever asked for a start at a moment has to obey the desired state as it is now.

        Args:
            asked_at: When a person asked; None for a schedule, which never undoes what a person has said.
            by: Who asks: the own stop of a DAG run, as a restore has one, does not bind it, nor does it bind
                a schedule.

        Returns:
            False only where the job is meant to be stopped, and that was said before the start was asked for.
            A run that waited in the queue while somebody stopped the job is outdated, and so is a task that
            is tried again.
        """
        desired = self.declared.job(ref).records().desired()
        if desired is None or desired.state != "stopped":
            return True
        own = is_same_run(by, desired.by)
        return not own and (asked_at is None or desired.at >= asked_at)

    @asking(AskedStop, tries=True)
    def ask_to_stop(self, ref: str, asked: AskedStop) -> StopAsked:
        """Ask a job's driver to stop, and return at once: `streambank.job.stop.ask_to_stop`."""
        from streambank.job.stop import ask_to_stop

        return ask_to_stop(
            self.declared.job(ref),
            **_who(asked),
            drain=asked.drain,
            force_after_s=asked.force_after_s,
            asker=asked.by.get(ASKER),
        )

    @asking(AskedStop, tries=True)
    def stop(self, ref: str, asked: AskedStop) -> StopResult:
        """Stop a job, and keep it stopped: `streambank.job.stop.stop_job`."""
        from streambank.driver.launchers.choose import check_registered
        from streambank.job.stop import stop_job

        job, how = self.declared.job(ref), {**_who(asked), **values_of(asked, StopOptions)}
        check_registered(job)
        desired = job.records().desired()
        # A try that was lost after its own start has undone its stop.
        undone = desired is not None and desired.state != "stopped" and _is_same_task(asked.by, desired.by)
        if asked.asked is None and ASKER in asked.by and not undone:  # so that another try knows of it
            asked.asked = self.ask_to_stop(ref, **vars(asked))
        return stop_job(job, note=asked.note, asked=asked.asked, **how)

    @asking(AskedRestart, tries=True)
    def ask_to_restart(self, ref: str, asked: AskedRestart) -> RestartAsked | None:
        """Ask a job's driver to make room for another: `streambank.job.restart.ask_to_restart`."""
        from streambank.job.restart import ask_to_restart

        how = {**_who(asked), **values_of(asked, RestartOptions)}
        return ask_to_restart(self.declared.job(ref), asker=asked.by.get(ASKER), **how)

    @asking(AskedRestart, tries=True)
    def restart(self, ref: str, asked: AskedRestart) -> RestartResult:
        """Stop a job and start it again in one operation: `streambank.job.restart.restart_job`."""
        from streambank.job.restart import restart_job

        how = {**_who(asked), **values_of(asked, RestartOptions)}
        how |= {"wait": asked.wait, "asker": asked.by.get(ASKER), "args": asked.application_args}
        return restart_job(self.declared.job(ref), asked.asked, **how)

    @connected
    def require_stopped(self, ref: str) -> None:
        """Make sure that no driver of a job lives.

        Raises:
            RefusedError: One does (code `job-running`), or its lease cannot be judged.
        """
        job = self.declared.job(ref)
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
        job = self.declared.job(ref)
        records = job.records()
        desired, view = records.desired(), records.lease.view()
        return desired is not None and desired.state == "stopped" and (view is None or view.state != "live")

    @connected
    def has_stopped(self, ref: str, *, by: Mapping[str, str] = CALLER) -> bool:
        """Whether a task of the DAG run that asks has ever said that a job is to be stopped."""
        said = self.declared.job(ref).records().last_desired(partial(is_same_run, by))
        return said is not None

    @connected
    def is_left_stopped(self, ref: str, *, by: Mapping[str, str] = CALLER) -> bool:
        """Whether a job was never started, or is meant to be stopped, which the run that asks did not say.

        Raises:
            RefusedError: Its records are lost (code `repository-lost`), so that is not known.
        """
        from streambank.driver.prepare import check_declared

        job = self.declared.job(ref)
        records = job.records()
        desired = records.desired()
        if desired is None:
            check_declared(job, records)
            return True
        return desired.state == "stopped" and not is_same_run(by, desired.by)

    @connected
    def driver_log(self, ref: str) -> DriverLog:
        """Where the newest driver's log is, and how it ends where that can be read from here."""
        from streambank.driver.failure import SEARCHED_LINES, driver_failure, shown
        from streambank.driver.launchers.choose import launcher_for
        from streambank.job.status import job_status

        job = self.declared.job(ref)
        status = job_status(job)
        where = status.log or status.tracking or status.submission
        if where is None or status.driver is None:
            return DriverLog()
        lines: Sequence[str] = ()
        try:
            lines = launcher_for(job).log_lines(status.driver, SEARCHED_LINES)
        except StorageError as error:  # what the records say of its end counts all the same
            _log.warning("The log %s of the driver of job %s is not read: %s", where, job.name, error.message)
        failure = driver_failure(job.records(), status.launch_id, lines)
        return DriverLog(where, failure, tuple(map(shown, lines[-LAST_LINES:])))

    @connected
    def diagnose(self, ref: str) -> list[dict[str, Any]]:
        """What will hurt a job: `streambank.doctor.diagnose.diagnose_job`, and what is installed here.

        Returns:
            Findings as JSON, each with `query` (None for one about this machine's installation).
        """
        from streambank.doctor.checks.installation import check_job_installation
        from streambank.doctor.diagnose import diagnose_job

        job, query = self.declared.find(ref)
        found: list[tuple[str | None, Finding]] = [
            *((None, finding) for finding in check_job_installation(job.python, job.spark_home)),
            *(
                (one.query, finding)
                for one in diagnose_job(job, query, jobs=self.declared.read())
                for finding in one.findings
            ),
        ]
        return [
            {**finding.to_dict(), "query": of, "hint": hint_for(finding.code, finding.hint, job.name)}
            for of, finding in found
        ]


def _who(asked: Asked) -> dict[str, Any]:
    """Who asks, and why; the engine adds the asker where it looks for one."""
    return {"by": {name: one for name, one in asked.by.items() if name != ASKER}, "why": asked.note}


def _is_same_task(by: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return is_same_run(by, other) and by.get("task_id") == other.get("task_id")
