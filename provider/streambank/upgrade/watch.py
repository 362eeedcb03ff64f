"""Whether new code gets on: its driver lives, its batches go on, and what the job promises is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from streambank.checkpoint.position import batches_of
from streambank.code.code import Code
from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.requests import STOP
from streambank.core.errors import StorageError, StreambankError
from streambank.core.shape import JsonObject
from streambank.declaration.declaration import Job
from streambank.declaration.objectives import PROMISES
from streambank.driver.failure import recorded_failure, root_cause
from streambank.driver.launcher import Launcher
from streambank.driver.location import is_of
from streambank.driver.spec import read_launch
from streambank.job.readiness import are_done, has_settled, query_starts, say_starts
from streambank.job.status import job_status
from streambank.sla.assess import assess_job
from streambank.sla.objectives import HISTORY
from streambank.storage import open_store
from streambank.upgrade.plan import launched_code

_LOOK_S = 1.0
FAILED = "new-code-failed"


def broken_objectives(job: Job) -> tuple[tuple[str, str], ...] | None:
    """Objectives that the job breaks now, each as query and objective; None where that cannot be read."""
    try:
        verdicts = assess_job(job, skew=False).verdicts
    except StreambankError:
        return None
    found = {
        (one.query, one.objective)
        for one in verdicts
        if one.level == "breach"
        and one.mute is None
        and (one.objective == HISTORY or PROMISES[one.objective].tells_of_code)
    }
    return tuple(sorted(found))


Ready = Literal["ready", "finished", "stopped", "other"]
"""`ready`; `finished`: the application ran to its end; `stopped`: a person stopped the job; `other`: a driver
of other code has the lease."""
_Life = Literal["lives", "between", "finished", "stopped", "other"]


@dataclass(frozen=True, slots=True)
class Wait(JsonObject):
    """A wait of an upgrade that needs no process: only what ends it early has to be noticed.

    Attributes:
        upgrade: The name of the upgrade.
        launch_id: The driver that is waited for or watched.
    """

    upgrade: str
    step: Literal["first-batch", "watch"]
    launch_id: str
    until: datetime


Leave = Callable[[Wait], object]
"""Called before a wait. It may leave it by raising something: then the upgrade is finished with that wait."""


@dataclass(eq=False)
class Watch:
    """A watch over the drivers of new code, one after the other.

    A driver that was asked to stop, or ran to its end, may make room for another one: a restart, a
    compaction. That one is watched, too, where it runs the new code. Records that cannot be read for a while
    say nothing against the code.
    """

    job: Job
    control: JobControl
    launcher: Launcher
    after: Code
    launch_id: str

    def first_batch(self, left_s: float) -> Ready:
        """Wait until each query has committed a batch, or found nothing to read.

        Args:
            left_s: What is left of the time that a start may take.

        Raises:
            StorageError: The driver ended, or it took too long (code `new-code-failed`).
        """
        deadline = time.monotonic() + left_s
        while True:
            late, said = time.monotonic() >= deadline, "its driver made room for another one, and none came"
            try:
                life, view = self._look()
                if life != "lives" and life != "between":
                    return life
                if life == "lives" and view is not None:
                    launch = read_launch(self.control, self.launch_id)
                    starts = query_starts(self.job.queries, launch, view.status)
                    if are_done(starts) and has_settled(view):
                        return "ready"
                    said = say_starts(starts)
            except StreambankError as error:
                if late or not _may_pass(error):
                    raise
            else:
                if late and life == "between":
                    return "stopped"
                if late:
                    raise _failed(f"after {self.job.start.timeout_s:.0f} s {said}")
            time.sleep(_LOOK_S / 4)

    def go_on(self, seconds: float) -> Ready:
        """Watch for a while: the driver lives, and batches go on.

        Raises:
            StorageError: It does not get on (code `new-code-failed`).
        """
        deadline = time.monotonic() + seconds
        while True:
            left_s = deadline - time.monotonic()
            try:
                life, _ = self._look()
                if life != "lives" and life != "between":
                    return life
                if life == "lives":
                    status = job_status(self.job, control=self.control, launcher=self.launcher, follow=False)
                    if status.health is not None and status.health.state == "unhealthy":
                        raise _failed(status.health.why)
            except StreambankError as error:
                if left_s <= 0 or not _may_pass(error):
                    raise
            else:
                if left_s <= 0:
                    return "ready" if life == "lives" else "stopped"
            time.sleep(min(_LOOK_S, max(left_s, 0.0)))

    def promises(self, broken_before: Sequence[tuple[str, str]] | None) -> str:
        """See that the job breaks no objective that it did not break before.

        Args:
            broken_before: Objectives that were broken before; None where that is not known.

        Returns:
            Why that is not known; empty where it is.

        Raises:
            StorageError: It does (code `new-code-failed`).
        """
        found = broken_objectives(self.job)
        if found is None or broken_before is None:
            when = "now" if found is None else "before the stop"
            return f"whether the new code breaks an objective is not known: {when} they could not be read"
        broken = [one for one in found if one not in broken_before]
        if broken:
            named = ", ".join(f"{objective} of query {query}" for query, objective in broken)
            raise _failed(f"it breaks what the job promises: {named}")
        return ""

    def _look(self) -> tuple[_Life, ClaimView | None]:
        desired, view = self.control.desired(), self.control.lease.view()
        if desired is not None and desired.state == "stopped":
            return "stopped", view
        if view is None:
            raise _failed("its driver is gone")
        mine = is_of(view, self.launch_id)
        if mine and not view.free:
            return "lives", view
        asked = self._was_asked()
        if not asked and self._exit_code(view if mine else None) != 0:
            then = "" if mine else ", and another one was started"
            failure = recorded_failure(self.control, self.launch_id)
            why = "" if failure is None else f": {root_cause(failure, self.control.name)}"
            raise _failed(f"its driver ended{then}{why}")
        if mine:
            return ("between" if asked else "finished"), view
        if view.holder is None or view.holder.details.get("purpose") != "run":
            return "between", view
        launch_id = str(view.holder.details.get("launch_id"))
        if (code := launched_code(self.control, launch_id)) is None or code.identity != self.after.identity:
            return "other", view
        self.launch_id = launch_id
        return ("between" if view.free else "lives"), view

    def _exit_code(self, view: ClaimView | None) -> object:
        """With which the driver ended; None where it died, or that is not known."""
        if view is not None:
            return view.end.get("exit_code")
        return (self.control.last_word(self.launch_id) or {}).get("exit_code")

    def _was_asked(self) -> bool:
        """Whether the driver was asked to stop."""
        epochs = {
            record.number
            for record in self.control.lease.claims.records.newest_first()
            if record.data.get("launch_id") == self.launch_id
        }
        return any(
            record.data.get("kind") == STOP and record.data.get("epoch") in epochs
            for record in self.control.requests.records.newest_first()
        )


def _may_pass(error: StreambankError) -> bool:
    return error.retryable and error.code != FAILED


def _failed(why: str) -> StorageError:
    return StorageError(
        f"The new code does not get on: {why.rstrip('.')}.",
        code="new-code-failed",
        hint="Look at the log of its driver, and at what the job promises.",
    )


def committed_at(location: str, batch: int) -> float | None:
    """When a batch was committed, in epoch seconds by the storage's clock; None where it was not."""
    store = open_store(location)
    key = f"commits/{batch}"
    found = store.stat(key).mtime_ns if store.exists(key) else 0
    return found / 1e9 if found else None


def first_commit_after(location: str, batch: int) -> float | None:
    """When the first batch after another was committed; None where none is, or Spark has removed it."""
    committed = batches_of(location).committed
    return None if committed is None or committed <= batch else committed_at(location, batch + 1)
