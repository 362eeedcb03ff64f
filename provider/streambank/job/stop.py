"""Stopping a job: at a batch boundary, by force after a while, and for sure.

The job is meant to be stopped from the first moment on, so nobody who keeps jobs running brings it back.
Then, under the operation lock: a driver that holds the lease is asked to stop, and waited for; one that does
not react although it lives on this host is killed after twice the time it was given; one that is still coming
up is ended at once. A savepoint is taken as soon as a driver has ended at a boundary but for its JVM, which
ends meanwhile. The stop is over when that is gone, too.

Who has somewhere better to wait asks first (`ask_to_stop`), which holds nothing, and calls `stop_job` with
what that returned when the driver is gone or took too long. A start in between has the last word.
"""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from streambank.checkpoint.position import Batches, batches_of
from streambank.control.claims import ClaimView, Holder
from streambank.control.control import RECENT_EVENTS, JobControl
from streambank.control.operation import Operation, WaitLog
from streambank.control.processes import ProcessId, person, send_signal
from streambank.control.pruning import prune_and_tell
from streambank.control.requests import STOP
from streambank.core.errors import (
    ConflictError,
    NotFoundError,
    RefusedError,
    StorageError,
    StreambankError,
)
from streambank.core.names import ASKER
from streambank.core.shape import JsonObject
from streambank.core.units import from_json_time, to_json_time, utc_now
from streambank.declaration.declaration import Job
from streambank.driver.failure import recorded_failure, root_cause
from streambank.driver.launcher import Handle, Launcher
from streambank.driver.launchers.choose import launcher_for, placed
from streambank.driver.location import (
    CLUSTER_MARGIN_S,
    check_launched_here,
    drivers_left,
    end_drivers,
    find_driver,
    is_driver_of,
    is_of,
    launched_handle,
)
from streambank.driver.spec import spec_of
from streambank.job.savepoint import savepoint_job
from streambank.job.stop_request import StopAsked, asked_before
from streambank.repository.names import check_savepoint_name
from streambank.repository.references import check_name_free
from streambank.work.executor import Pace
from streambank.work.pace import Progress

_log = logging.getLogger(__name__)

_LOOK_S = 0.2
_MARGIN_S = 15.0

__all__ = ["How", "StopResult", "ask_to_stop", "stop_job"]


@dataclass(frozen=True, slots=True)
class StopResult(JsonObject):
    """What a stop came to.

    Attributes:
        state: `stopped`, or `already-stopped` where no driver was there to be stopped.
        how: `boundary`: every batch that was begun was committed; `forced`: a batch was abandoned and runs
            again after the next start; `killed`: so were the processes; `dead`: the driver had died before;
            `none`: there was none.
        drained: Whether a trigger found no new data before the stop; None where that was not asked.
        batch: Newest committed batch, of several queries the oldest such; None before the first.
        seconds: How long the stop took, savepoints included.
        warnings: What a restore of the savepoints will miss.
    """

    job: str
    state: Literal["stopped", "already-stopped"]
    how: How
    drained: bool | None = None
    epoch: int | None = None
    batch: int | None = None
    batches: Mapping[str, int | None] = field(default_factory=dict)
    savepoints: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()


def ask_to_stop(
    job: Job,
    *,
    by: Mapping[str, str],
    why: str = "",
    drain: bool = False,
    force_after_s: float | None = None,
    drain_timeout_s: float | None = None,
    control: JobControl | None = None,
    asker: str | None = None,
    lasting: bool = True,
) -> StopAsked:
    """Say that a job is to be stopped, ask its driver, and return at once; `stop_job` finishes it.

    Needs no operation lock: it changes nothing but what is meant to be, and a driver that stops because of it
    does what it was meant to do. Nobody who keeps jobs running brings it back, and where nobody ever finishes
    the stop, the driver ends all the same.

    Args:
        asker: A name under which whoever asks may ask again, in another process: the first time counts. Who
            has started the job since has the last word, and such a driver is not asked.
        lasting: See `stop_job`.

    Raises:
        RefusedError: Somebody has started the job since this asker asked first (`started-since`).
    """
    records = control or job.records()
    if asker is not None:
        by = {**by, ASKER: asker}
    before = asked_before(records, asker) if asker is not None else None
    if before is not None:
        at = before.at
    else:
        desired = records.set_desired("stopped", by=by, why=why) if lasting else None
        at = to_json_time(desired.at if desired else utc_now())
    force_s, drain_s = _within(job, force_after_s, drain_timeout_s)
    stop = _Stop(job, records, None, by, why, drain, force_s, drain_s, before)
    stop.check_not_started_since()
    view = records.lease.view()
    living = view is not None and not view.free and view.is_driver
    if view is not None and living and (before is None or before.epoch != view.epoch):
        return StopAsked(at, stop.patience_s(), view.epoch, stop.ask(view.epoch))
    return replace(before or StopAsked(at, 0.0), patience_s=stop.patience_s())


def stop_job(
    job: Job,
    *,
    by: Mapping[str, str],
    why: str = "",
    savepoint: bool = False,
    drain: bool = False,
    force_after_s: float | None = None,
    drain_timeout_s: float | None = None,
    note: str = "",
    name: str = "",
    pin: bool = False,
    launcher: Launcher | None = None,
    control: JobControl | None = None,
    operation: Operation | None = None,
    progress: Progress | None = None,
    asked: StopAsked | None = None,
    lasting: bool = True,
) -> StopResult:
    """Stop a job, and keep it stopped.

    Args:
        savepoint: Take a savepoint of each query once it stands still, at its last committed batch.
        drain: Wait, before stopping, until a trigger of each query finds nothing new. Where new data keeps
            coming that never happens: after `drain_timeout_s` the job is stopped all the same, and the result
                says so.
        force_after_s: When a stop that reaches no batch boundary is forced; the declared time when left out.
        drain_timeout_s: How long to wait for the drain; the declared time when left out.
        name: Of the savepoint, unique within the job; empty for none. It is checked before anything stops.
        operation: The operation lock, where the caller holds it already (a restart).
        asked: What `ask_to_stop` returned, called with the same options: this finishes that stop.
        lasting: Whether it is to stay stopped; False leaves what is meant to be, for who starts it again, and
            has left a mark before, against drivers that come up late (`location.mark_stop`).

    Raises:
        ConflictError: Another operation works on the job (code `operation-in-progress`).
        InputError: The savepoint cannot have that name (`bad-savepoint-name`), or another one of the running
            job has it (`name-taken`); or the job's launcher is not installed, or cannot be used
            (`no-such-launcher`, `ambiguous-launcher`, `bad-launcher`); nothing has been recorded.
        RefusedError: The lease is held by an operation, or cannot be judged (`lease-held`); or somebody has
            started the job since it was `asked` to stop (`started-since`); or a driver may still run in
            another place than the declared one (`launched-elsewhere`).
        StorageError: The driver lives on another host and did not stop in time (`stop-timeout`).
    """
    records = control or job.records()
    place = launcher or launcher_for(job)
    if savepoint and name:
        _check_name(job, records, name)
    if asked is None and lasting:
        records.set_desired("stopped", by=by, why=why)
    force_s, drain_s = _within(job, force_after_s, drain_timeout_s)
    stop = _Stop(job, records, place, by, why, drain, force_s, drain_s, asked, lasting)
    if operation is not None:
        return stop.run(savepoint, note, pin, progress, name)
    with records.operation("stop", by=by, wait_s=stop.patience_s(), any_site=True):
        return stop.run(savepoint, note, pin, progress, name)


def _within(job: Job, force_after_s: float | None, drain_timeout_s: float | None) -> tuple[float, float]:
    return force_after_s or job.stop.force_after_s, drain_timeout_s or job.stop.drain_timeout_s


def _check_name(job: Job, records: JobControl, name: str) -> None:
    """Refuse a name that the savepoint cannot get, while the job still runs."""
    check_savepoint_name(name)
    view = records.lease.view()
    if view is None or view.free:
        return  # it may be the name of the savepoint that an earlier stop has taken
    try:
        repository = job.open_repository()
    except NotFoundError:
        return
    for query in job.queries:
        check_name_free(repository.store, job.savepoint_name(query), name, "")


@dataclass
class _Stop:
    job: Job
    control: JobControl
    launcher: Launcher | None
    by: Mapping[str, str]
    why: str
    drain: bool
    force_after_s: float
    drain_timeout_s: float
    asked: StopAsked | None = None
    lasting: bool = True
    left: ClaimView | None = None  # the lease of the driver that was stopped

    def __post_init__(self) -> None:
        self.waits = WaitLog(_log)
        self.clock = self.control.clock
        self.began = self.clock.monotonic()
        if self.asked is not None:
            # Begun by another process, perhaps on another machine: its clock tells how long ago.
            self.began -= max(0.0, (utc_now() - from_json_time(self.asked.at)).total_seconds())

    def patience_s(self) -> float:
        """How long the driver itself may take: the drain, then `force_after_s` for each of its two steps."""
        return (self.drain_timeout_s if self.drain else 0.0) + 2 * self.force_after_s + _MARGIN_S

    def ask(self, epoch: int) -> int:
        """Ask the driver of an epoch, unless it is being asked just that; the number of the request."""
        options = {
            "drain": self.drain,
            "force_after_s": self.force_after_s,
            "drain_timeout_s": self.drain_timeout_s,
        }
        for request in self.control.requests.open(epoch):
            if request.kind == STOP and request.options == options:
                return request.number
        return self.control.requests.post(STOP, epoch=epoch, by=self.by, why=self.why, **options).number

    def run(
        self, savepoint: bool, note: str, pin: bool, progress: Progress | None, name: str = ""
    ) -> StopResult:
        self.check_not_started_since()
        view = self.control.lease.settle()
        asked = self.asked.epoch if self.asked is not None else None
        epoch = view.epoch if view is not None else None
        how: How
        drained: bool | None = None
        state: Literal["stopped", "already-stopped"] = "stopped"
        if view is not None and (not view.free or view.epoch == asked):
            how, drained = self._stop_driver(view, leaving=savepoint)
        elif asked is not None:
            # The driver that was asked is gone, and somebody else has had the lease since.
            epoch = asked
            assert self.asked is not None and self.asked.request is not None, "a driver was asked"
            how, drained = how_it_answered(self.control, self.asked.request)
        else:
            how = "dead" if _has_died(self.control, view) else "none"
            state = "already-stopped"
            if self._end_left(view):
                how, state = "killed", "stopped"
                view = self.control.lease.view()  # it may have got the lease before it was ended
                epoch = view.epoch if view is not None else None
        if how in ("dead", "killed") and view is not None and view.state != "ended" and view.epoch == epoch:
            # Its record would show a death for ever; the job is stopped now, and that is known.
            self.control.lease.claims.end(view.epoch, "died", by=dict(self.by), why=view.why)
        batches = last_batches(self.control, self.job)
        known = [one.committed for one in batches.values() if one.committed is not None]
        savepoints: dict[str, str] = {}
        warnings = (
            [f"Its driver had failed: {failure}"] if (failure := _failure(self.control, how, view)) else []
        )
        if savepoint:  # the JVM of the driver ends meanwhile
            try:
                taken = savepoint_job(
                    self.job,
                    by=self.by,
                    why=self.why,
                    note=note,
                    name=name,
                    pin=pin,
                    control=self.control,
                    pace=Pace(progress=progress),
                )
            except StreambankError:
                with contextlib.suppress(StreambankError):  # what the savepoint met counts
                    self._until_gone()
                raise
            savepoints = {name: one.savepoint for name, one in taken.savepoints.items()}
            warnings += [warning for one in taken.savepoints.values() for warning in one.warnings]
        if self._until_gone():
            warnings.append("Its JVM did not end by itself after its queries had ended, and was killed.")
        result = StopResult(
            job=self.job.name,
            state=state,
            how=how,
            drained=drained if self.drain else None,
            epoch=epoch if state == "stopped" else None,
            batch=min(known) if known and len(known) == len(batches) else None,
            batches={name: one.committed for name, one in batches.items()},
            savepoints=savepoints,
            seconds=round(self.clock.monotonic() - self.began, 3),
            warnings=tuple(warnings),
        )
        self.control.record_event("stopped", by=dict(self.by), why=self.why, **result.to_dict())
        prune_and_tell(self.control)
        return result

    def check_not_started_since(self) -> None:
        """Make sure that nobody has started the job since it was asked to stop."""
        desired = self.control.desired()
        if self.lasting and self.asked and desired is not None and desired.state != "stopped":
            raise RefusedError(
                f"Job {self.job.name} was started again after this stop was requested, by "
                f"{person(desired.by)}.",
                code="started-since",
                hint="Stop it again if you still want that.",
            )

    def _stop_driver(self, view: ClaimView, leaving: bool) -> tuple[How, bool | None]:
        """Ask a driver to stop, and wait until it has.

        Args:
            leaving: Return when it has ended well but for its JVM (`_until_gone` waits for that): its queries
                have ended at a boundary, and so has the application, with all that it writes at its end.
        """
        holder = view.holder
        if holder is None or not view.is_driver:
            raise self.control.lease.refusal(view)
        launch_id = str(view.launch_id)
        deadline = self.clock.monotonic() + self.patience_s()
        if self.asked is not None and self.asked.request is not None and self.asked.epoch == view.epoch:
            request = self.asked.request
            deadline = max(self.began + self.patience_s(), self.clock.monotonic() + _MARGIN_S)
        else:
            request = self.ask(view.epoch)
        killed = False
        while True:
            now = self.control.lease.view()
            if now is not None and now.epoch != view.epoch and is_of(now, launch_id):
                # Its cluster has brought it back. It refuses itself; else it is asked, like the one before.
                view, holder = now, now.holder or holder
                request = request if now.free else self.ask(now.epoch)
            if now is None or now.epoch != view.epoch:
                raise ConflictError(
                    f"Another driver of job {self.job.name} took over while the first was being stopped.",
                    code="lease-moved",
                    hint="Stop it again.",
                )
            ended_well = now.end.get("how") == "released" and now.end.get("exit_code") == 0
            if now.free and leaving and ended_well and not killed and not self._is_still_there(now, "python"):
                how, drained = how_it_ended(self.control, self.job, request, now, killed)
                if how == "boundary":
                    self.left = now
                    return how, drained
            if now.free and not self._is_still_there(now):
                # A heartbeat that stood still is no proof: the cluster may have the driver all the same.
                killed = (now.state == "dead" and self._end_left(now)) or killed
                return how_it_ended(self.control, self.job, request, now, killed)
            if self.clock.monotonic() >= deadline:
                deadline = self._force(now, launch_id, holder, killed)
                killed = True
            self.waits(self._waiting(killed))
            self.clock.sleep(_LOOK_S)

    def _until_gone(self) -> bool:
        """Wait until the JVM of a driver that has ended well is gone; whether it was killed.

        Raises:
            StorageError: It did not end (code `stop-timeout`).
        """
        deadline, killed = self.clock.monotonic() + self.force_after_s + _MARGIN_S, False
        while (view := self.left) is not None and self._is_still_there(view):
            if self.clock.monotonic() >= deadline:
                assert view.holder is not None, "it has processes"
                deadline = self._force(view, str(view.launch_id), view.holder, killed)
                killed = True
            self.waits(f"Waiting until the JVM of job {self.job.name} has ended")
            self.clock.sleep(_LOOK_S)
        return killed

    def _force(self, view: ClaimView, launch_id: str, holder: Holder, killed: bool) -> float:
        """Kill a driver that did not stop in time; until when it is waited for then.

        Raises:
            StorageError: It was, or cannot be (code `stop-timeout`).
        """
        driver = self._driver(launch_id, holder)
        here = self.control.here.sees(holder.host)
        if killed or not (here or driver.submission):
            raise StorageError(
                f"The driver of job {self.job.name} did not stop in time: {view.describe()}.",
                code="stop-timeout",
                hint="The stop request remains; look at the driver's host and log.",
            )
        deadline = self.clock.monotonic() + _MARGIN_S
        if driver.submission is not None:
            assert self.launcher is not None, "who only asks does not wait"
            self.launcher.kill(driver)
            # Elsewhere it is seen to be gone when its beat has stood still for its TTL.
            deadline += CLUSTER_MARGIN_S + (0.0 if here else 1.5 * holder.ttl_s)
        if here:
            self._kill(launch_id, holder.processes)
        return deadline

    def _kill(self, launch_id: str, processes: Iterable[ProcessId]) -> None:
        """Kill the driver's processes on this host, the JVM first, and nothing else."""
        living = [one for one in processes if one.is_living()]
        for one in living:
            if not is_driver_of(self.control, launch_id, one):
                raise StorageError(
                    f"The lease of job {self.job.name} names process {one.pid}, which was not started as a "
                    "driver of this job: it is not killed.",
                    code="not-its-driver",
                    hint="Look at the process, and at who can write among the job's records. If it is the "
                    "driver, end it by hand.",
                )
        for one in sorted(living, key=lambda one: one.role != "jvm"):
            send_signal(one, signal.SIGKILL)

    def _waiting(self, killed: bool) -> str:
        if killed:
            return f"The driver of job {self.job.name} did not stop in time, and was killed"
        until = "has processed what its sources hold" if self.drain else "is at a batch boundary"
        return f"Waiting until job {self.job.name} {until}, and no longer than {self.patience_s():.0f} s"

    def _driver(self, launch_id: str, holder: Holder) -> Handle:
        assert self.launcher is not None, "who only asks does not wait"
        known = launched_handle(self.control, launch_id, holder.processes)
        return find_driver(self.launcher, self.control, known, spec_of(self.control, launch_id))[0]

    def _end_left(self, view: ClaimView | None) -> bool:
        """End every driver that is there, has not got the lease, and may yet come to run, or still does.

        One that waits for an upgrade is ended, too, unless the job starts again; it has run nothing.
        """
        assert self.launcher is not None, "who only asks does not end anything"
        check_launched_here(placed(self.job), self.control, view)
        left = drivers_left(self.launcher, self.control, view)
        for waiting in left.held if self.lasting else ():
            self.launcher.kill(waiting)
        end_drivers(self.launcher, self.control, left.unheld)
        return bool(left.unheld)

    def _is_still_there(self, view: ClaimView, role: str | None = None) -> bool:
        """Whether processes of a driver that gave its lease back (of a role) are still on their way out."""
        holder = view.holder
        if holder is None or not self.control.here.sees(holder.host):
            return False
        return any(one.is_living() for one in holder.processes if role in (None, one.role))


How = Literal["boundary", "forced", "killed", "dead", "none"]
HOW: Mapping[How, str] = {
    "boundary": "at a batch boundary; no batch was abandoned",
    "forced": "by force; the batch that ran is repeated at the next start",
    "killed": "by killing it; the batch that ran is repeated at the next start",
    "dead": "its driver had died before; see job history",
    "none": "there was no driver",
}
"""How drivers end, for people."""


def how_it_ended(
    control: JobControl, job: Job, request: int, view: ClaimView, killed: bool
) -> tuple[How, bool | None]:
    """How the driver ended that had the lease last, and whether it was drained.

    Args:
        killed: Whether whoever stopped it had to.
    """
    answer = control.requests.answer_to(request) or {}
    drained = answer.get("drained")
    if killed:
        return "killed", drained
    if view.state == "dead":
        return ("killed" if _was_killed_by_its_runner(control, view) else "dead"), drained
    if answer.get("state") == "forced" or not all(
        one.at_boundary for one in last_batches(control, job).values()
    ):
        return "forced", drained
    return "boundary", drained


def how_it_answered(control: JobControl, request: int) -> tuple[How, bool | None]:
    """How a driver ended whose lease somebody else has had since: only its answer tells."""
    answer = control.requests.answer_to(request)
    if answer is None:
        return "dead", None
    return ("forced" if answer.get("state") == "forced" else "boundary"), answer.get("drained")


def _has_died(control: JobControl, view: ClaimView | None) -> bool:
    """Whether the last driver died or failed, and no stop has said so yet."""
    if view is not None and view.state == "dead":
        return True
    kinds = ("launched", "driver-started", "driver-died", "stopped")
    last = control.last_event(*kinds, newest=RECENT_EVENTS)
    # The lease says how a driver ended that began before so many events.
    kind = "driver-started" if last is None else last["kind"]
    if kind == "stopped":
        return False
    return kind == "driver-died" or (
        view is not None and view.is_driver and view.end.get("exit_code") not in (None, 0)
    )


def _failure(control: JobControl, how: How, view: ClaimView | None) -> str | None:
    if how != "dead" or view is None or view.launch_id is None:
        return None
    failure = recorded_failure(control, view.launch_id)
    return None if failure is None else root_cause(failure, control.name)


def _was_killed_by_its_runner(control: JobControl, view: ClaimView) -> bool:
    last = control.last_event("killed", "driver-started", newest=RECENT_EVENTS)
    return last is not None and last.get("kind") == "killed" and last.get("epoch") == view.epoch


def last_batches(control: JobControl, job: Job) -> dict[str, Batches]:
    """The newest batches of each query, in its current generation; none where there is no checkpoint yet."""
    found = {}
    for name, declared in job.queries.items():
        try:
            found[name] = batches_of(control.checkpoint(name, declared))
        except NotFoundError:
            found[name] = Batches(None, None)
    return found
