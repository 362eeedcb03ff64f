"""Stopping a job: at a batch boundary, by force after a while, and for sure.

The job is meant to be stopped from the first moment on, so nobody who keeps jobs running brings it back.
Then, under the operation lock: a driver that holds the lease is asked to stop, and waited for; one that does
not react although it lives on this host is killed after twice the time it was given; one that is still coming
up is ended at once.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from streambank.errors import ConflictError, NotFoundError, StorageError
from streambank.job.batches import Batches, batches_of
from streambank.job.claims import ClaimView
from streambank.job.control import JobControl
from streambank.job.declaration import Job
from streambank.job.generations import MAIN
from streambank.job.launcher import Launcher, LocalLauncher
from streambank.job.operation import Operation
from streambank.job.processes import send_signal
from streambank.job.requests import STOP
from streambank.job.savepoint import savepoint_job
from streambank.savepoint.progress import Progress

_LOOK_S = 0.2
_MARGIN_S = 15.0

How = Literal["boundary", "forced", "killed", "dead", "none"]


@dataclass(frozen=True, slots=True)
class StopResult:
    """What a stop came to.

    Attributes:
        job: The job.
        state: `stopped`, or `already-stopped` where no driver was there to be stopped.
        how: `boundary`: every batch that was begun was committed; `forced`: a batch was abandoned and runs
            again after the next start; `killed`: so were the processes; `dead`: the driver had died before;
            `none`: there was none.
        drained: Whether a trigger found no new data before the stop; None where that was not asked.
        epoch: The epoch of the driver that was stopped.
        batch: Newest committed batch, of several queries the oldest such; None before the first.
        batches: The newest committed batch of each query.
        savepoints: The savepoint of each query, where they were asked for.
        seconds: How long the stop took, savepoints included.
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

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


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
    pin: bool = False,
    launcher: Launcher | None = None,
    control: JobControl | None = None,
    operation: Operation | None = None,
    progress: Progress | None = None,
) -> StopResult:
    """Stop a job, and keep it stopped.

    Args:
        job: The declared job.
        by: Who asks.
        why: Why, for the records.
        savepoint: Take a savepoint of each query once it stands still, at its last committed batch.
        drain: Wait, before stopping, until a trigger of each query finds nothing new. Where new data keeps
            coming that never happens: after `drain_timeout_s` the job is stopped all the same, and the result
                says so.
        force_after_s: When a stop that reaches no batch boundary is forced; the declared time when left out.
        drain_timeout_s: How long to wait for the drain; the declared time when left out.
        note: Of the savepoint.
        pin: Pin the savepoint.
        launcher: Where drivers run; this machine when left out.
        control: The job's records; opened from the declaration when left out.
        operation: The operation lock, where the caller holds it already (a restart).
        progress: Told about files and bytes of the savepoint.

    Raises:
        ConflictError: Another operation works on the job (code `operation-in-progress`).
        RefusedError: The lease is held by an operation, or cannot be judged (`lease-held`).
        StorageError: The driver lives on another host and did not stop in time (`stop-timeout`).
        StreambankError: Whatever a savepoint raises; the job is stopped then.
    """
    records = control or job.records()
    records.set_desired("stopped", by=by, why=why)
    stop = _Stop(
        job,
        records,
        launcher or LocalLauncher(),
        by,
        why,
        drain,
        force_after_s or job.stop.force_after_s,
        drain_timeout_s or job.stop.drain_timeout_s,
    )
    if operation is not None:
        return stop.run(savepoint, note, pin, progress)
    with records.operation("stop", by=by, wait_s=stop.patience_s()):
        return stop.run(savepoint, note, pin, progress)


class _Stop:
    def __init__(
        self,
        job: Job,
        control: JobControl,
        launcher: Launcher,
        by: Mapping[str, str],
        why: str,
        drain: bool,
        force_after_s: float,
        drain_timeout_s: float,
    ) -> None:
        self.job = job
        self.control = control
        self.launcher = launcher
        self.by = by
        self.why = why
        self.drain = drain
        self.force_after_s = force_after_s
        self.drain_timeout_s = drain_timeout_s
        self.clock = control.clock
        self.began = self.clock.monotonic()

    def patience_s(self) -> float:
        """How long the driver itself may take: the drain, then `force_after_s` for each of its two steps."""
        return (self.drain_timeout_s if self.drain else 0.0) + 2 * self.force_after_s + _MARGIN_S

    def run(self, savepoint: bool, note: str, pin: bool, progress: Progress | None) -> StopResult:
        view = self.control.lease.settle()
        drained: bool | None = None
        if view is None or view.free:
            how: How = "dead" if view is not None and view.state == "dead" else "none"
            state: Literal["stopped", "already-stopped"] = "already-stopped"
            if self._end_upcoming():
                how, state = "killed", "stopped"
                view = self.control.lease.view()  # it may have got the lease before it was ended
        else:
            state = "stopped"
            how, drained = self._stop_driver(view)
        if how in ("dead", "killed") and view is not None:
            # Its record would show a death for ever; the job is stopped now, and that is known.
            self.control.lease.claims.end(view.epoch, "died", by=dict(self.by), why=view.why)
        batches = self._batches()
        known = [one.committed for one in batches.values() if one.committed is not None]
        savepoints: dict[str, str] = {}
        if savepoint:
            taken = savepoint_job(
                self.job,
                by=self.by,
                why=self.why,
                note=note,
                pin=pin,
                control=self.control,
                progress=progress,
            )
            savepoints = {name: one.savepoint for name, one in taken.savepoints.items()}
        result = StopResult(
            job=self.job.name,
            state=state,
            how=how,
            drained=drained if self.drain else None,
            epoch=view.epoch if view is not None and state == "stopped" else None,
            batch=min(known) if known and len(known) == len(batches) else None,
            batches={name: one.committed for name, one in batches.items()},
            savepoints=savepoints,
            seconds=round(self.clock.monotonic() - self.began, 3),
        )
        self.control.record_event("stopped", by=dict(self.by), why=self.why, **result.to_dict())
        return result

    def _stop_driver(self, view: ClaimView) -> tuple[How, bool | None]:
        holder = view.holder
        if holder is None or holder.details.get("purpose") != "run":
            raise self.control.lease.refusal(view)
        request = self.control.requests.post(
            STOP,
            epoch=view.epoch,
            by=self.by,
            why=self.why,
            drain=self.drain,
            force_after_s=self.force_after_s,
            drain_timeout_s=self.drain_timeout_s,
        )
        deadline = self.clock.monotonic() + self.patience_s()
        killed = False
        while True:
            now = self.control.lease.view()
            if now is None or now.epoch != view.epoch:
                raise ConflictError(
                    f"Another driver of job {self.job.name} took over while the first was being stopped.",
                    code="lease-moved",
                    hint="Stop it again.",
                )
            if now.free and not self._is_still_there(now):
                return self._how(request.number, now, killed)
            if self.clock.monotonic() >= deadline:
                if killed or not self.control.here.sees(holder.host):
                    raise StorageError(
                        f"The driver of job {self.job.name} did not stop in time: {now.describe()}.",
                        code="stop-timeout",
                        hint="It is still asked to; look at its host and its log.",
                    )
                killed = True
                deadline = self.clock.monotonic() + _MARGIN_S
                for one in sorted(holder.processes, key=lambda one: one.role != "jvm"):
                    send_signal(one, signal.SIGKILL)
            self.clock.sleep(_LOOK_S)

    def _is_still_there(self, view: ClaimView) -> bool:
        """Whether processes of a driver that gave its lease back are still on their way out."""
        holder = view.holder
        if holder is None or not self.control.here.sees(holder.host):
            return False
        return any(one.is_living() for one in holder.processes)

    def _how(self, request: int, view: ClaimView, killed: bool) -> tuple[How, bool | None]:
        answer = self.control.requests.answer_to(request) or {}
        drained = answer.get("drained")
        if killed:
            return "killed", drained
        if view.state == "dead":
            return ("killed" if self._was_killed_by_its_runner(view) else "dead"), drained
        if answer.get("state") == "forced" or not all(one.at_boundary for one in self._batches().values()):
            return "forced", drained
        return "boundary", drained

    def _was_killed_by_its_runner(self, view: ClaimView) -> bool:
        last = self.control.last_event("killed", "driver-started")
        return last is not None and last.get("kind") == "killed" and last.get("epoch") == view.epoch

    def _end_upcoming(self) -> bool:
        """End drivers that a start left behind before they had the lease: they have not begun anything."""
        been = self.control.lease.recent_launches()
        found = [handle for handle in self.launcher.find(self.control) if handle.launch_id not in been]
        for handle in found:
            self.launcher.kill(handle)
        deadline = self.clock.monotonic() + _MARGIN_S
        while any(self.launcher.status(handle).state == "running" for handle in found):
            if self.clock.monotonic() >= deadline:
                raise StorageError(
                    f"A driver of job {self.job.name} that was coming up could not be ended.",
                    code="stop-timeout",
                    hint="Look for processes that do not react to SIGKILL.",
                )
            self.clock.sleep(_LOOK_S)
        return bool(found)

    def _batches(self) -> dict[str, Batches]:
        found = {}
        for name, declared in self.job.queries.items():
            generation = self.control.generation(None if name == MAIN else name)
            try:
                found[name] = batches_of(generation.location if generation else declared)
            except NotFoundError:
                found[name] = Batches(None, None)
        return found
