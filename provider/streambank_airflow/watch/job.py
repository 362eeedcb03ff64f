"""How a job is, as sensors and triggers judge it again and again.

A watcher is kept for as long as one waits: a driver on another host is judged by whether its heartbeat moves
under the observer's eyes, which takes more than one look.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from streambank.control.claims import ClaimView
from streambank.control.control import JobControl
from streambank.control.place import MOVED
from streambank.control.processes import person
from streambank.control.watch import LATE_S, SIGN_EVERY_S, Watcher, WatcherState, WatchView
from streambank.core.errors import StreambankError
from streambank.core.shape import JsonObject
from streambank.core.units import utc_now
from streambank.declaration.declaration import Job
from streambank.job.health import Health, Observer, Unhealthy, judge_health
from streambank.job.readiness import are_done, has_settled, query_starts, say_starts
from streambank.job.states import JobState
from streambank.storage import S3Access, using_s3

if TYPE_CHECKING:
    from streambank.job.status import JobStatus

_log = logging.getLogger(__name__)

STATES: tuple[str, ...] = get_args(JobState)
"""What a job can be, as `streambank job status` says it."""

LOST = ("repository-lost", "checkpoint-lost")
"""States of a job that has lost what a start needs."""

DOWN = frozenset({"never-started", *LOST, "stopped", "failed"})
"""States in which there is no driver."""

DRIVEN = frozenset({"running", "stopping", "unknown"})
"""States in which a driver has the lease, or may have it."""


@dataclass(frozen=True, slots=True)
class JobView(JsonObject):
    """A job at one moment; flat but for `unhealthy`, for XComs and events.

    Attributes:
        state: One of `STATES`.
        desired: What is meant to be: `running`, `stopped`, or None where nobody ever said.
        desired_at: Since when, ISO-8601.
        desired_by: Who said so, for people.
        operation: The operation that works on it now (`restore`, `start`, ...), or None.
        epoch: The lease's newest epoch.
        launch_id: The newest launch.
        batch: The newest committed batch of the query that is looked at; of several, the oldest such.
        triggered: Whether the driver that lives is ready: each query looked at had its first trigger, and the
            application has started what it starts.
        under_way: The same, whatever the application still starts.
        starts: What those queries have done under it, as half a sentence; None without a driver.
        finished: Whether the last driver's application ran to its end by itself, and well.
        exit_code: The exit code with which the last driver gave its lease back; None for one that died.
        watermark: The event time up to which all output is written and committed, ISO-8601, where that was
            looked at (event_time.py); None for none yet, and for one beyond what a calendar can say.
        watermark_ms: The same in milliseconds since the epoch.
        without_watermark: The query that has no watermark and will not get one, by what its driver says.
        health: Whether its driver makes progress: `healthy`, `unhealthy` or `unknown`; None without a driver.
        unhealthy: Of an unhealthy driver what whoever replaces it needs to know (`Unhealthy.to_dict`).
        replaced_by: Who watches the job instead of whoever looks here; None where nobody does.
        newer_watcher: Who may do so: that is not known yet (`WatchState.newer`).
        watch_lost: Whether the watcher that looks here has to begin again, since no other one watches;
            where all records of the job are lost, its state says so.
        watch_why: Why no other one does, where it is not the record of this one that is lost.
        watch_gone: In whose place it begins (`WatchState.gone`): number and identity.
    """

    job: str
    state: str
    why: str = ""
    desired: str | None = None
    desired_at: str | None = None
    desired_by: str | None = None
    desired_why: str | None = None
    operation: str | None = None
    epoch: int | None = None
    launch_id: str | None = None
    batch: int | None = None
    triggered: bool = False
    under_way: bool = False
    starts: str | None = None
    finished: bool = False
    exit_code: int | None = None
    watermark: str | None = None
    watermark_ms: int | None = None
    without_watermark: str | None = None
    health: str | None = None
    health_why: str | None = None
    unhealthy: Mapping[str, Any] | None = None
    replaced_by: str | None = None
    newer_watcher: str | None = None
    watch_lost: bool = False
    watch_why: str = ""
    watch_gone: Mapping[str, Any] | None = None

    @property
    def words(self) -> str:
        """How it is, in a sentence."""
        more = [
            f"{self.operation} works on it" if self.operation else "",
            "" if self.batch is None else f"its newest batch is {self.batch}",
            f"it makes no progress: {self.health_why}" if self.health == "unhealthy" else "",
            self.why.rstrip("."),
        ]
        return f"Job {self.job} is {self.state}: {'; '.join(filter(None, more))}".rstrip(": ") + "."

    @property
    def down(self) -> bool:
        """Whether there is no driver and nobody works on the job, so that nothing will change by itself."""
        return self.state in DOWN and self.operation is None


@dataclass(frozen=True, slots=True)
class WatchState:
    """How whoever looks stands as the watcher of a job; it is the one that acts where nothing here is said.

    Attributes:
        replaced_by: Who watches instead, and was seen to give signs.
        newer: Who has the newest record instead, and was not seen to give signs yet, nor to be silent.
        lost: Whether no other one watches, and it has to begin again.
        why: Why, as a sentence, where it is not its own record that is lost.
        gone: In whose place it has to begin, where the records alone do not say so.
    """

    replaced_by: str | None = None
    newer: str | None = None
    lost: bool = False
    why: str = ""
    gone: Watcher | None = None


@dataclass(slots=True)
class WatchSigns:
    """Leaves a sign of a watcher with a look, once a minute at most, and learns who has taken over.

    A newer watcher counts once its signs come under the eyes of this one. Records that say that there is one
    may be all that is left of it: its run is not in a database that came back from a backup.

    Attributes:
        every_s: How often a sign is left, in seconds.
        clock: Seconds on a clock that never jumps.
        process: What tells its signs from those of another process that has the same watcher.
    """

    watcher: Watcher
    every_s: float = SIGN_EVERY_S
    clock: Callable[[], float] = time.monotonic
    process: str = field(default_factory=lambda: secrets.token_hex(8))
    _left_at: float | None = field(default=None, init=False)
    _has_left: bool = field(default=False, init=False)
    _stands: WatchState = field(default=WatchState(), init=False)
    _first: tuple[WatchView, float] | None = field(default=None, init=False)

    def leave(self, control: JobControl) -> WatchState:
        """Leave a sign if one is due; how the watcher stands.

        Where the records cannot be written the watch goes on all the same: a driver that dies is noticed, and
        whoever judges the job says that no signs come.
        """
        now = self.clock()
        if self._left_at is not None and now - self._left_at < self.every_s:
            return self._stands
        self._left_at = now
        try:
            desired = control.desired()
            number = None if desired is None else desired.number
            found = control.watches.sign(
                self.watcher, desired=number, next_s=self.every_s, process=self.process
            )
        except StreambankError as error:
            _log.warning(
                "The sign that job %s is watched could not be written: %s", control.name, error.message
            )
            self._stands = WatchState()
        else:
            self._stands = self._judge(found, now)
        return self._stands

    def _judge(self, found: WatcherState, now: float) -> WatchState:
        if found.other is not None:
            return self._beside(found.other, now)
        self._first = None
        if found.lost:
            return WatchState(lost=True, why=found.why)
        if self._has_left and found.process not in (None, self.process):
            why = (
                "Another process gives signs as the same run: two Airflows, from one database or its copies."
            )
            return WatchState(lost=True, why=why, gone=self.watcher)
        self._has_left = True
        return WatchState()

    def _beside(self, other: WatchView, now: float) -> WatchState:
        """How it stands while another one has the newest record, which may act."""
        if self._first is None or self._first[0].watcher != other.watcher:
            self._first = other, now
        first, since = self._first
        if other.gave_up:
            return WatchState(replaced_by=f"{other.who}, which has given it up")
        if other.seen_at != first.seen_at:
            return WatchState(replaced_by=other.who)
        if now - since > other.next_s + LATE_S:
            why = f"Its watcher, {other.who}, has given no sign for {now - since:.0f} s."
            return WatchState(lost=True, why=why, gone=other.watcher)
        return WatchState(newer=other.who)


@dataclass(slots=True)
class JobWatcher:
    """Looks at one job.

    Args:
        query: The query whose batches count; None for all of them.
        access: How S3 is reached, with every look; None for what the process's own settings say.
        observer: Sees for how long a driver's heartbeat stands still.
        failures: How many drivers in a row ended, or made no progress, without a new batch.
        signs: Leaves signs that somebody watches; None where whoever looks does not keep the job running.
    """

    job: Job
    query: str | None = None
    access: S3Access | None = None
    observer: Observer = field(default_factory=Observer)
    failures: int = 0
    signs: WatchSigns | None = None
    control: JobControl = field(init=False)

    def __post_init__(self) -> None:
        """Open the records, once for all looks."""
        with using_s3(self.access):
            self.control = self.job.records()

    def follow(self) -> JobControl:
        """The records, opened again where they were moved since."""
        if self.control.store.exists(MOVED):
            self.control = self.job.records()
        return self.control

    def look(self) -> JobView:
        """How the job is now.

        Raises:
            FormatError: A record is damaged.
        """
        with using_s3(self.access):
            self.follow()
            stands = self.signs.leave(self.control) if self.signs is not None else WatchState()
            view = self._look()
            # Where nothing says what is meant to be, all records are lost: then the state says so.
            return replace(
                view,
                replaced_by=stands.replaced_by,
                newer_watcher=stands.newer,
                watch_lost=stands.lost and view.desired is not None,
                watch_why=stands.why,
                watch_gone=None if stands.gone is None else asdict(stands.gone),
            )

    def desired_words(self) -> str:
        """Who set the job to what, when and why, in words."""
        with using_s3(self.access):
            self.follow()
            desired = self.control.desired()
            return "" if desired is None else desired.words

    def _look(self) -> JobView:
        from streambank.job.status import job_status

        # The order of these looks counts, for the job goes on meanwhile. What the driver says comes before
        # the batches: one that says that its first trigger is over has committed what that trigger found. And
        # the operation comes first: what a start or a restore leaves must not be taken for a death.
        operation = self._operation()
        said = self.control.lease.view()
        status = job_status(self.job, control=self.control, follow=False)
        view = self.control.lease.view()
        health, unhealthy = self._health(status, said)
        under_way, settled, starts = self._readiness(status, said)
        return JobView(
            job=status.job,
            state=status.state,
            why=status.why,
            desired=status.desired,
            desired_at=status.desired_at,
            desired_by=person(status.desired_by) if status.desired_by else None,
            desired_why=status.desired_why or None,
            operation=_working(status) or operation,
            epoch=status.epoch,
            launch_id=status.launch_id,
            batch=status.batch if self.query is None else status.queries[self.query].batch,
            triggered=under_way and settled,
            under_way=under_way,
            starts=starts,
            finished=status.state in ("stopped", *LOST) and self._finished(view),
            exit_code=None if view is None else view.end.get("exit_code"),
            health=None if health is None else health.state,
            health_why=None if health is None else health.why,
            unhealthy=None if unhealthy is None else unhealthy.to_dict(),
        )

    def _health(self, status: JobStatus, said: ClaimView | None) -> tuple[Health | None, Unhealthy | None]:
        """How a driver gets on, by what it said before its batches were looked at."""
        if said is None:
            return None, None
        batches = {name: query.batch for name, query in status.queries.items()}
        seen = self.observer.look(said, batches)
        if status.state not in ("running", "stopping") or said.epoch != status.epoch:
            return None, None
        policy = self.job.health.after(self.failures)
        health = judge_health(policy, self.job.queries, said.status, seen)
        if health.state != "unhealthy":
            return health, None
        beat = said.beat.get("beat")
        return health, Unhealthy(said.epoch, beat, seen.silent_s, batches, health.why, self.failures)

    def _operation(self) -> str | None:
        view = self.control.operation_lock.view()
        if view is None or view.free:
            return None
        return str(view.holder.details.get("operation")) if view.holder else "operation"

    def _readiness(self, status: JobStatus, said: ClaimView | None) -> tuple[bool, bool, str | None]:
        """Whether its queries are under way, whether its application has settled; the first in words."""
        if said is None or status.state not in ("running", "stopping"):
            return False, False, None
        names = self.job.queries if self.query is None else (self.query,)
        starts = query_starts(names, None, said.status)
        settled = self.query is not None or has_settled(said)
        return are_done(starts), settled, say_starts(starts)

    def _finished(self, view: ClaimView | None) -> bool:
        """Whether the application ended by itself, not because it was asked to stop or sent TERM."""
        if view is None or view.holder is None or view.state != "ended" or view.end.get("exit_code") != 0:
            return False
        launch_id = view.holder.details.get("launch_id")
        return launch_id is not None and not self.control.was_asked_to_stop(launch_id)


@dataclass(frozen=True, slots=True)
class WatchedView(JobView):
    """A job at one moment, and who watches it.

    Attributes:
        watched: Whether its newest watcher gives signs and has seen what is meant to be now: one from before
            the last start has not.
        watcher: Which that is, in words; None for none.
        gave_up: Why it has given the job up that is meant to run now; None where it has not.
    """

    watched: bool = False
    watcher: str | None = None
    gave_up: str | None = None


@dataclass(slots=True)
class WatchedWatcher:
    """Looks at a job, and at who watches it."""

    job: JobWatcher

    def look(self) -> WatchedView:
        """How it is now.

        Raises:
            FormatError: A record is damaged.
        """
        with using_s3(self.job.access):
            newest = self.job.control.watches.view()
            desired = self.job.control.desired()
        view = self.job.look().to_dict()
        if newest is None:
            return WatchedView(**view)
        is_meant = desired is not None and desired.state == "running" and newest.desired == desired.number
        gave_up = str(newest.end.get("why")) if is_meant and newest.gave_up else None
        return WatchedView(
            **view, watched=is_meant and newest.acts(utc_now()), watcher=newest.who, gave_up=gave_up
        )


def _working(status: JobStatus) -> str | None:
    """The operation that works on the job; one whose process died no longer does."""
    if status.operation_state == "dead":
        return None
    return status.operation
