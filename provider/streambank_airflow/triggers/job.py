"""The waits on a job: until it works, has ended or stopped, is in some state, or has committed a batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import TriggerEvent

from streambank.control.watch import SIGN_EVERY_S, Watcher
from streambank.core.errors import InputError, StreambankError
from streambank.core.units import from_json_time, utc_now
from streambank.job.health import MOST_S, AwakeClock, Observer
from streambank_airflow.failures import describe
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.triggers.base import (
    DeadlineTrigger,
    Event,
    JobTrigger,
    SensorTrigger,
    StoredTrigger,
)
from streambank_airflow.watch.job import DRIVEN, LOST, WatchedView, WatchedWatcher, WatchSigns

if TYPE_CHECKING:
    from logging import Logger

    from structlog.typing import FilteringBoundLogger

    from streambank_airflow.notify.alerts import Alert
    from streambank_airflow.page.keep import WatchedPage
    from streambank_airflow.watch.job import JobView, JobWatcher


RUNS_ON = (
    "The stream of job %s runs on: what ends this task stops no driver. To stop it, use "
    "StopStreamingJobOperator; to have it stopped with the task, stop_on_kill=True."
)
NOT_BEGUN = "Job %s is left as it is: this task was ended before it has started or stopped anything."
BETWEEN = (
    "The driver of job %s was asked to stop at a batch boundary, and this task, which was ended, may not "
    "have started another one. To have the job run, run the task again, or StartStreamingJobOperator."
)


def leave_or_stop(
    hook: StreambankHook | None,
    job: str,
    by: Mapping[str, str] | None,
    log: FilteringBoundLogger | Logger,
    left: str = RUNS_ON,
) -> None:
    """Say how a job is left after a task that was ended, or ask it to stop at a batch boundary.

    Args:
        hook: None where it is left.
        by: Who asks it to stop; None to leave it.
        left: How it is left.
    """
    if hook is None or by is None:
        log.warning(left, job)
        return
    try:
        hook.jobs.ask_to_stop(job, by=by, note="a task with stop_on_kill was ended")
    except StreambankError as error:
        log.error("Job %s could not be asked to stop, and may run on: %s", job, describe(error))
    else:
        log.warning("Job %s is asked to stop at a batch boundary, since this task is ended.", job)


class DriverTrigger(JobTrigger):
    """A wait of a task that has launched a driver.

    Args:
        stop_by: Who asks the job to stop where a person marks or clears the task meanwhile; None for nobody.
    """

    stop_by: Mapping[str, str] | None = None
    left: ClassVar[str] = RUNS_ON

    async def on_kill(self) -> None:
        """Leave the stream, or ask it to stop, and say so; Airflow calls this from 3.3 on."""
        hook = None
        if self.stop_by is not None:
            hook = await self.aopen_hook()
        await asyncio.to_thread(leave_or_stop, hook, self.job, self.stop_by, self.log, self.left)


class JobReadyTrigger(DriverTrigger, DeadlineTrigger):
    """Waits until the driver of a job that is being started is ready: its queries have had a first trigger.

    Ends with `ready`; `gone` where the driver is no more; `late` where it took too long. At the end of its
    time queries that are under way are enough, as for a start that waits itself.
    """

    @property
    def awaits(self) -> str:
        return f"the first trigger of the queries of job {self.job}{self.until}"

    def progress(self, view: JobView) -> Hashable:
        return view.starts

    def words(self, view: JobView) -> str:
        return f"{view.words} Its queries: {view.starts}." if view.starts else view.words

    def outcome(self, view: JobView) -> str | None:
        if view.triggered or (self.is_over and view.under_way):
            return "ready"
        if view.down:
            return "gone"
        return "late" if self.is_over else None


class JobEndTrigger(DriverTrigger):
    """Waits, for days if need be, until a job runs no more and nobody works on it, or does not get on.

    While a restore or another operation has the job, whatever its driver does is that operation's business.
    Ends with `stopped` (somebody wanted that), `finished` (the application ran to its end), `gone`,
    `unhealthy` (a driver lives and makes no progress, as the job declares it), `replaced` (another run
    watches the job by now, and gives signs), or with `unsigned` (it has to begin to watch: at once where it
    never did; where its record is lost while the job goes on; where a newer watcher gives no signs).

    Args:
        heal: Whether to look for that, too.
        failures: How many drivers in a row made no batch: this one's first may take the longer.
        watch: The number under which it leaves signs that the job is watched; None in what a version that
            left none has stored.
        watch_id: What tells that watcher's record from another one with its number; None in what a version
            without that has stored.
        site: The site of the job whose records have that number, which is the one that is watched; None for
            a copy.
        own_dag: Whether its DAG is one of one's own, which leaves the page of another job of that name.
    """

    heal: bool = False
    failures: int = 0
    watch: int | None = None
    watch_id: str | None = None
    site: str | None = None
    own_dag: bool = False
    _page: WatchedPage | None = field(default=None, init=False)
    _watcher: JobWatcher | None = field(default=None, init=False)
    _alerted: str | None = field(default=None, init=False)

    def open_watcher(self, hook: StreambankHook) -> JobWatcher:
        """What looks at the job, and notices when it has not looked for a while itself."""
        from streambank_airflow.notify.alerts import send_alert
        from streambank_airflow.page.keep import page_of_watch

        try:
            watcher = hook.watchers.job(self.job, self.site)
        except InputError as error:
            said = f"Nothing watches job {self.job}, and no driver of it"
            # By what can be read of the job.
            self._alert(error, said, "it is watched again", partial(send_alert, hook, self.job))
            raise
        watcher.observer = Observer(AwakeClock(max(MOST_S, 3 * self.poll_interval_s)))
        watcher.failures = self.failures
        if self.watch is not None:
            every_s = max(SIGN_EVERY_S, self.poll_interval_s)
            watcher.signs = WatchSigns(Watcher(self.watch, self.watch_id), every_s)
            self._page = page_of_watch(hook, self.job, takes_over=not self.own_dag)
        self._watcher = watcher
        return watcher

    def held(self, event: Event, hook: StreambankHook) -> Event | None:
        """Hold it back while the job's declaration has a mistake: its task could not even find the job.

        Where the job needs somebody meanwhile, this is the only one that can say so.
        """
        from streambank_airflow.notify.alerts import send_alert_of

        if self._watcher is None:
            return event
        try:
            hook.declared.read().around(self.job)
        except InputError as error:
            if event["status"] in ("gone", "unhealthy"):
                gone = event["status"] == "gone"
                what = f"is gone ({event['why']})" if gone else f"makes no progress ({event['health_why']})"
                said = f"The driver of job {self.job} {what}, and no other one"
                # By the declaration of before.
                send = partial(send_alert_of, self._watcher.job, self._watcher.access)
                self._alert(error, said, "the job goes on by itself", send)
            return None
        return event

    def _failure(self, error: StreambankError, failures: int) -> Event | None:
        """A mistake in the declaration says nothing of the job: it is waited for."""
        if isinstance(error, InputError):
            return None
        return super()._failure(error, failures)

    def _alert(self, error: InputError, said: str, then: str, send: Callable[[Alert, Any], object]) -> None:
        """Alert once of each mistake in the declaration."""
        from streambank_airflow.notify.alerts import Alert

        mistake = f"{error.message} {error.hint}".strip()
        if self._alerted == mistake:
            return
        self._alerted = mistake
        message = f"{said} can be started: {mistake} Correct the jobs file: {then} then."
        self.log.error("%s", message)
        send(Alert(("giving-up", "restart"), message), {})

    def noted(self, view: JobView) -> JobView:
        """Keep the job's page beside the watch, in a separate thread: at once where the job has changed."""
        if self._page is not None and view.replaced_by is None:
            self._page.after_look(view.launch_id, (view.state, view.desired, view.health == "unhealthy"))
        return view

    still_s: ClassVar[float] = 3600.0  # it lasts for weeks

    @property
    def awaits(self) -> str:
        return f"the end of job {self.job}"

    def outcome(self, view: JobView) -> str | None:
        if self.watch is None:
            return "unsigned"
        if view.replaced_by is not None:
            return "replaced"
        if view.newer_watcher is not None and not (view.down and view.desired == "stopped"):
            return None  # the job is for that one, if it lives: that shows within minutes
        if view.down:
            return "stopped" if view.desired == "stopped" else "finished" if view.finished else "gone"
        meant_to_run = view.desired != "stopped" and view.operation is None
        if self.heal and meant_to_run and view.health == "unhealthy":
            return "unhealthy"
        return "unsigned" if view.watch_lost and view.desired != "stopped" else None


class DriverGoneTrigger(DriverTrigger, DeadlineTrigger):
    """Waits until the driver of an epoch of the lease, which was asked to stop, is gone.

    Ends with `gone`, also where another epoch has begun; `late` where it took too long.

    Args:
        restarts: Whether the task starts another driver then: where the task is ended, nobody does.
    """

    epoch: int
    restarts: bool = False
    left = BETWEEN

    async def on_kill(self) -> None:
        """See `DriverTrigger`; a stop goes on, as its task was to have it."""
        if self.restarts:
            await super().on_kill()

    @property
    def awaits(self) -> str:
        return f"the end of the driver of job {self.job}, which was asked to stop{self.until}"

    def outcome(self, view: JobView) -> str | None:
        if view.epoch != self.epoch or view.state not in DRIVEN:
            return "gone"
        return "late" if self.is_over else None


class DriverStaysTrigger(DeadlineTrigger):
    """Waits until a time, unless something happens to the driver of a launch before.

    Ends with `late`; before that with `changed` where the driver is gone, replaced or makes no progress, or
    the job is meant to be stopped.
    """

    launch_id: str

    @property
    def awaits(self) -> str:
        return f"the time to pass in which the new driver of job {self.job} may fail{self.until}"

    def outcome(self, view: JobView) -> str | None:
        stays = view.launch_id == self.launch_id and not view.down
        if not stays or view.desired == "stopped" or view.health == "unhealthy":
            return "changed"
        return "late" if self.is_over else None


class JobWatchedTrigger(DeadlineTrigger):
    """Waits until somebody watches a job as it is meant to be now.

    A watcher counts that gives signs and has seen the newest record of what is meant to be: one from before
    the job was stopped has not, and where it goes on all the same it has, with its next sign.
    Ends with `watched`; `stopped` or `finished` where there is nothing to watch any more; `ended` where the
    watcher gave up; `late` where it took too long.
    """

    def open_watcher(self, hook: StreambankHook) -> WatchedWatcher:
        """What looks at the job, and at who watches it."""
        return WatchedWatcher(hook.watchers.job(self.job))

    @property
    def awaits(self) -> str:
        return f"a run that watches job {self.job}{self.until}"

    def outcome(self, view: JobView) -> str | None:
        assert isinstance(view, WatchedView), "what this trigger looks with gives no other"
        if view.watched:
            return "watched"
        if view.desired == "stopped":
            return "stopped"
        if view.down and view.finished:
            return "finished"
        if view.gave_up is not None:
            return "ended"
        return "late" if self.is_over else None


class PauseTrigger(StoredTrigger):
    """Waits `until` a moment, ISO-8601; how long is left does not depend on which triggerer waits."""

    until: str
    remember: Mapping[str, Any] = field(default_factory=dict)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Sleep what is left."""
        left_s = (from_json_time(self.until) - utc_now()).total_seconds()
        await asyncio.sleep(max(0.0, left_s))
        event = {"status": "over", "remember": self.remember}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]  # nor does its event


class JobStatusTrigger(SensorTrigger):
    """Waits until a job is in one of some states."""

    states: Sequence[str]

    @property
    def awaits(self) -> str:
        named = [one for one in self.states if one not in LOST] or self.states
        return f"job {self.job} to be {' or '.join(named)}"

    def outcome(self, view: JobView) -> str | None:
        return "done" if view.state in self.states else self.failed(view)


class BatchCommittedTrigger(SensorTrigger):
    """Waits until a batch is committed; of a job with several queries the slowest counts.

    Args:
        after_batch: Any batch above this one; -1 for the very first.
        accept_idle: Also be content with a driver whose first trigger found no data.
    """

    after_batch: int
    accept_idle: bool = False

    def is_committed(self, view: JobView) -> bool:
        """Whether such a batch is."""
        return view.batch is not None and view.batch > self.after_batch

    @property
    def awaits(self) -> str:
        return f"a batch of job {self.job} above {self.after_batch}"

    def progress(self, view: JobView) -> Hashable:
        return view.batch

    def outcome(self, view: JobView) -> str | None:
        if self.is_committed(view) or (self.accept_idle and view.triggered):
            return "done"
        return self.failed(view)

    def said(self, view: JobView) -> Event:
        idle = self.accept_idle and view.triggered and not self.is_committed(view)
        return {"idle": idle, **view.to_dict()}
