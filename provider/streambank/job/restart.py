"""Restarting a job: the driver that runs it makes room for another one, at a batch boundary.

The job is meant to run all the while. So a restart that dies in the middle leaves a job that whoever keeps
jobs running starts again; and a job that somebody has stopped, before or meanwhile, stays stopped. Stop and
start are one operation: nobody else starts, restores or saves the job in between.

Who has somewhere better to wait asks first (`ask_to_restart`), which holds nothing, and calls `restart_job`
when the driver is gone or took too long. In between anybody may have started the job; then that was the
restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from streambank.code.chosen import as_chosen
from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.core.names import ASKER
from streambank.core.shape import JsonObject
from streambank.core.units import to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.driver.launcher import Launcher
from streambank.driver.launchers.choose import check_registered, launcher_for, placed
from streambank.driver.location import is_of
from streambank.driver.stops import mark_stop
from streambank.job.start import StartResult, check_launch, start_job
from streambank.job.stop import How, StopResult, ask_to_stop, stop_job
from streambank.job.stop_request import StopAsked, request_of

OPERATION = "restart"
"""What the operation lock says while one driver makes room for another."""
ASKED = "restart-asked"
"""The kind of event that says which driver is to be replaced."""
RESTARTED = "restarted"
"""The kind of event that says which driver has replaced another one, and when that was asked for."""

RestartState = Literal["restarted", "started", "finished", "not-desired", "not-needed"]


@dataclass(frozen=True, slots=True)
class RestartAsked(JsonObject):
    """A restart that was asked for and is still to be finished, by any process; JSON by `to_dict`.

    Attributes:
        before: The newest epoch of the lease when it was asked for; 0 for none. A driver of a later one has
            replaced what was to be replaced, unless it is of the same launch.
        stop: The stop of its driver, where one lives.
        launch_id: The launch that had that epoch: its cluster may bring it back under a later one. None where
            that is not known.
    """

    before: int
    stop: StopAsked
    launch_id: str | None = None

    def is_replaced(self, view: ClaimView | None) -> bool:
        """Whether another launch has had the lease since, which decides: its epochs alone do not."""
        if view is None or view.epoch <= self.before:
            return False
        return self.launch_id is None or not is_of(view, self.launch_id)


@dataclass(frozen=True, slots=True)
class RestartResult:
    """What a restart came to.

    Attributes:
        state: `restarted`; `started`, where no driver lived; `finished` (the application ran to its end
            meanwhile); `not-desired` (somebody has stopped the job, before or meanwhile); `not-needed`
            (`still_needed` said so, and nothing was touched).
        how: How the driver before it ended (see `StopResult`); None where somebody else had seen to it.
    """

    state: RestartState
    start: StartResult
    stopped_epoch: int | None = None
    how: How | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON: what a start gives, with `state` of the restart, `stopped_epoch` and `how`."""
        own = {"state": self.state, "stopped_epoch": self.stopped_epoch, "how": self.how}
        return self.start.to_dict() | own


def ask_to_restart(
    job: Job,
    *,
    by: Mapping[str, str],
    why: str = "",
    force_after_s: float | None = None,
    control: JobControl | None = None,
    asker: str | None = None,
) -> RestartAsked | None:
    """Ask a job's driver to make room for another one, and return at once; `restart_job` does the rest.

    Args:
        force_after_s: When a stop that reaches no batch boundary is forced; the declared time when left out.
        asker: A name under which whoever asks may ask again, in another process. The driver that ran when
            they asked first is the one to be replaced; no later one is asked.

    Returns:
        None where the job is meant to be stopped: then nothing is asked.

    Raises:
        InputError: The job's launcher is not installed or cannot be used (`no-such-launcher`,
            `ambiguous-launcher`, `bad-launcher`): the driver could be stopped, and none be started.
        ConflictError: An operation works on the job (code `operation-in-progress`), so its driver is not to
            be stopped under its hands.
        StreambankError: No driver could be launched in its place (`check_launch`).
    """
    records = control or job.records()
    check_registered(job)
    records.operation_lock.require_free(OPERATION)
    return _ask(job, records, by, why, force_after_s, asker)


def _ask(
    job: Job,
    records: JobControl,
    by: Mapping[str, str],
    why: str,
    force_after_s: float | None,
    asker: str | None,
    only: int | None = None,
    launcher: Launcher | None = None,
) -> RestartAsked | None:
    if records.is_stopped():
        return None
    by = {**by, ASKER: asker} if asker is not None else by
    before = _asked_before(records, asker) if asker is not None else None
    view = records.lease.view()
    if only is not None and view is not None and view.epoch > only:
        return RestartAsked(only, StopAsked(_now(), 0.0))
    if before is None:
        where, _ = as_chosen(placed(job), records)
        check_launch(where, records, launcher or launcher_for(where))
        if view is None or view.free:
            # One that waits for room may take the lease now: either it sees this, or it is seen here.
            mark_stop(records, by=by, why=why)
            view = records.lease.view()
        # Before anything is asked of a driver, so that who asks again knows which one it was.
        newest, launch_id = (view.epoch, view.launch_id) if view is not None else (0, None)
        before = RestartAsked(newest, StopAsked(_now(), 0.0), launch_id)
        records.record_event(ASKED, by=dict(by), why=why, epoch=before.before, launch_id=launch_id)
    if before.is_replaced(view):
        return before
    stop = ask_to_stop(job, by=by, why=why, force_after_s=force_after_s, control=records, lasting=False)
    if stop.epoch is None and asker is not None:
        # Asked before, and gone since: how it ended is told by its answer.
        epoch, request = request_of(records, asker)
        stop = replace(stop, epoch=epoch, request=request)
    return replace(before, stop=stop)


def restart_job(
    job: Job,
    asked: RestartAsked | None = None,
    *,
    by: Mapping[str, str],
    why: str = "",
    force_after_s: float | None = None,
    wait: bool = True,
    launcher: Launcher | None = None,
    control: JobControl | None = None,
    asker: str | None = None,
    only: int | None = None,
    still_needed: Callable[[], bool] | None = None,
    lock_wait_s: float | None = None,
    cause: str | None = None,
    args: Sequence[str] | None = None,
) -> RestartResult:
    """Restart a job, or finish a restart: see that the driver is gone, and that another one runs.

    Args:
        asked: What `ask_to_restart` returned, called with the same options; asked here when left out.
        wait: Return only when each query has committed a batch since, or found no data; else when the new
            driver holds the lease.
        asker: As `ask_to_restart` takes it, where that was left out.
        only: Replace only a driver of this epoch; one of a later epoch has replaced it already.
        still_needed: Asked once, with the operation lock in hand and before anything is done.
        lock_wait_s: How long to wait for another operation to end; as long as a stop may take when left out.
        args: Arguments of the application for the new driver, as `start_job` takes them.
        cause: What it is for, where a program has decided that (`health`), for the event.

    Raises:
        InputError: As `ask_to_restart`.
        ConflictError: Another operation works on the job (code `operation-in-progress`).
        RefusedError: The lease is held by an operation, or cannot be judged (`lease-held`).
        StorageError: The old driver lives on another host and did not stop in time (`stop-timeout`), or the
            new one did not get going (`driver-died`, `start-timeout`).
    """
    records = control or job.records()
    if launcher is None:
        check_registered(job)
    stopped: StopResult | None = None
    wait_s = asked.stop.patience_s if asked is not None else 2 * (force_after_s or job.stop.force_after_s)
    if lock_wait_s is not None:
        wait_s = lock_wait_s
    again = partial(
        start_job, job, by=by, why=why, obey_desired=True, launcher=launcher, control=records, args=args
    )
    with records.operation(OPERATION, by=by, wait_s=wait_s) as held:
        if records.is_stopped():
            return RestartResult("not-desired", _unstarted(job, records))
        if still_needed is not None and not still_needed():
            return RestartResult("not-needed", StartResult(job.name, "already-running"))
        asked = asked or _ask(job, records, by, why, force_after_s, asker, only, launcher)
        if asked is None or records.is_stopped():
            return RestartResult("not-desired", _unstarted(job, records))
        view = records.lease.settle()
        if not asked.is_replaced(view):
            stopped = stop_job(
                job,
                by=by,
                why=why,
                force_after_s=force_after_s,
                launcher=launcher,
                control=records,
                operation=held,
                asked=asked.stop if asked.stop.epoch is not None else None,
                lasting=False,
            )
        start = again(operation=held, wait=False)
        if stopped is not None and start.state == "started":
            records.record_event(
                RESTARTED,
                launch_id=start.launch_id,
                epoch=start.epoch,
                asked_at=asked.stop.at,
                how=stopped.how,
                by=dict(by),
                why=why,
                **({"cause": cause} if cause is not None else {}),
            )
    if wait and start.state in ("started", "already-running"):
        # Without the lock, so that a stop need not wait for a first batch that does not come.
        start = again()
    return _result(start, stopped)


def _result(start: StartResult, stopped: StopResult | None) -> RestartResult:
    state: RestartState = "started"
    if start.state == "finished" or start.state == "not-desired":
        state = start.state
    elif stopped is None or stopped.how in ("boundary", "forced", "killed"):
        state = "restarted"
    if stopped is None:
        return RestartResult(state, start)
    return RestartResult(state, start, stopped.epoch, stopped.how)


def _unstarted(job: Job, records: JobControl) -> StartResult:
    desired = records.desired()
    return StartResult(job.name, "not-desired", why=desired.words if desired is not None else "")


def _asked_before(records: JobControl, asker: str) -> RestartAsked | None:
    """Which driver an asker wanted replaced, by the job's records; None where they never asked."""
    for record in records.event_records.newest_first():
        data = record.data
        if data.get("kind") == ASKED and (data.get("by") or {}).get(ASKER) == asker:
            return RestartAsked(int(data["epoch"]), StopAsked(_now(), 0.0), data.get("launch_id"))
    return None


def _now() -> str:
    return to_json_time(utc_now())
