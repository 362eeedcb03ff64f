"""The waits on a job: until it works, has ended or stopped, is in some state, or has committed a batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from streambank.control.watch import SIGN_EVERY_S, Watcher
from streambank.core.errors import InputError, StreambankError
from streambank.core.units import from_json_time, utc_now
from streambank.job.health import MOST_S, AwakeClock, Observer
from streambank_airflow.triggers.base import Event, JobTrigger
from streambank_airflow.watch.job import DRIVEN, WatchedView, WatchedWatcher, WatchSigns

if TYPE_CHECKING:
    from streambank_airflow.hooks.streambank import StreambankHook
    from streambank_airflow.page.keep import WatchedPage
    from streambank_airflow.watch.job import JobView, JobWatcher


class JobReadyTrigger(JobTrigger):
    """Waits until the driver of a job that is being started is ready: its queries have had a first trigger.

    Ends with `ready`; `gone` where the driver is no more; `late` where it took too long. At the end of its
    time queries that are under way are enough, as for a start that waits itself.

    Args:
        give_up_at: ISO-8601 time at which it is too late.
        kwargs: As for every `JobTrigger`.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("give_up_at",)

    def __init__(self, *, give_up_at: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.give_up_at = give_up_at

    def judge(self, view: JobView) -> Event | None:
        over = utc_now() >= from_json_time(self.give_up_at)
        if view.triggered or (over and view.under_way):
            return {"status": "ready", **view.to_dict()}
        if view.down:
            return {"status": "gone", **view.to_dict()}
        if over:
            return {"status": "late", **view.to_dict()}
        return None


class JobEndTrigger(JobTrigger):
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
        kwargs: As for every `JobTrigger`.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("heal", "failures", "watch", "watch_id", "site")

    def __init__(
        self,
        *,
        heal: bool = False,
        failures: int = 0,
        watch: int | None = None,
        watch_id: str | None = None,
        site: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.heal = heal
        self.failures = failures
        self.watch = watch
        self.watch_id = watch_id
        self.site = site
        self._page: WatchedPage | None = None
        self._looks: tuple[StreambankHook, JobWatcher] | None = None
        self._alerted: str | None = None

    def open_watcher(self, hook: StreambankHook) -> JobWatcher:
        """What looks at the job, and notices when it has not looked for a while itself."""
        from streambank_airflow.page.keep import page_of_watch

        try:
            watcher = hook.watchers.job(self.job, self.site)
        except InputError as error:
            self._alert_of_blindness(hook, f"{error.message} {error.hint}".strip())
            raise
        watcher.observer = Observer(AwakeClock(max(MOST_S, 3 * self.poll_interval_s)))
        watcher.failures = self.failures
        if self.watch is not None:
            every_s = max(SIGN_EVERY_S, self.poll_interval_s)
            watcher.signs = WatchSigns(Watcher(self.watch, self.watch_id), every_s)
            self._page = page_of_watch(hook, self.job)
        self._looks = hook, watcher
        return watcher

    def held(self, event: Event) -> Event | None:
        """Hold it back while the job's declaration has a mistake: its task could not even find the job.

        Where the job needs somebody meanwhile, this is the only one that can say so.
        """
        if self._looks is None:
            return event
        hook, watcher = self._looks
        try:
            hook.declared.read().around(self.job)
        except InputError as error:
            if event["status"] in ("gone", "unhealthy"):
                self._alert(hook, watcher, event, f"{error.message} {error.hint}".strip())
            return None
        return event

    def _failure(self, error: StreambankError, failures: int) -> Event | None:
        """A mistake in the declaration says nothing of the job: it is waited for."""
        if isinstance(error, InputError):
            return None
        return super()._failure(error, failures)

    def _alert_of_blindness(self, hook: StreambankHook, mistake: str) -> None:
        """Alert once of each mistake with which this trigger was opened, by what can be read of the job."""
        from streambank_airflow.notify.alerts import Alert, send_alert

        if self._alerted == mistake:
            return
        self._alerted = mistake
        message = (
            f"Nothing watches job {self.job}, and no driver of it can be started: {mistake} Correct the jobs "
            "file: it is watched again then."
        )
        self.log.error("%s", message)
        send_alert(hook, self.job, Alert(("giving-up", "restart"), message), {})

    def _alert(self, hook: StreambankHook, watcher: JobWatcher, event: Event, mistake: str) -> None:
        """Alert once of each mistake, by the declaration of before."""
        from streambank_airflow.notify.alerts import Alert, send_alert_of

        if self._alerted == mistake:
            return
        self._alerted = mistake
        gone = event["status"] == "gone"
        what = f"is gone ({event['why']})" if gone else f"makes no progress ({event['health_why']})"
        message = (
            f"The driver of job {self.job} {what}, and no other one can be started: {mistake} Correct the "
            "jobs file: the job goes on by itself then."
        )
        self.log.error("%s", message)
        send_alert_of(watcher.job, watcher.access, Alert(("giving-up", "restart"), message), {})

    def noted(self, view: JobView) -> JobView:
        """Keep the job's page beside the watch, in a separate thread: at once where the job has changed."""
        if self._page is not None and view.replaced_by is None:
            self._page.after_look(view.launch_id, (view.state, view.desired, view.health == "unhealthy"))
        return view

    def judge(self, view: JobView) -> Event | None:
        if self.watch is None:
            return {"status": "unsigned", **view.to_dict()}
        if view.replaced_by is not None:
            return {"status": "replaced", **view.to_dict()}
        if view.newer_watcher is not None and not (view.down and view.desired == "stopped"):
            return None  # the job is for that one, if it lives: that shows within minutes
        if view.down:
            status = "stopped" if view.desired == "stopped" else "finished" if view.finished else "gone"
            return {"status": status, **view.to_dict()}
        meant_to_run = view.desired != "stopped" and view.operation is None
        if self.heal and meant_to_run and view.health == "unhealthy":
            return {"status": "unhealthy", **view.to_dict()}
        lost = view.watch_lost and view.desired != "stopped"
        return {"status": "unsigned", **view.to_dict()} if lost else None


class DriverGoneTrigger(JobTrigger):
    """Waits until the driver of an epoch, which was asked to stop, is gone.

    Ends with `gone`, also where another epoch has begun; `late` where it took too long.

    Args:
        epoch: The driver's epoch of the lease.
        give_up_at: ISO-8601 time at which it is too late.
        kwargs: As for every `JobTrigger`.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("epoch", "give_up_at")

    def __init__(self, *, epoch: int, give_up_at: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epoch = epoch
        self.give_up_at = give_up_at

    def judge(self, view: JobView) -> Event | None:
        if view.epoch != self.epoch or view.state not in DRIVEN:
            return {"status": "gone", **view.to_dict()}
        if utc_now() >= from_json_time(self.give_up_at):
            return {"status": "late", **view.to_dict()}
        return None


class JobWatchedTrigger(JobTrigger):
    """Waits until somebody watches a job as it is meant to be now.

    A watcher counts that gives signs and has seen the newest record of what is meant to be: one from before
    the job was stopped has not, and where it goes on all the same it has, with its next sign.
    Ends with `watched`; `stopped` or `finished` where there is nothing to watch any more; `ended` where the
    watcher gave up; `late` where it took too long.

    Args:
        give_up_at: ISO-8601 time at which it is too late.
        kwargs: As for every `JobTrigger`.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("give_up_at",)

    def __init__(self, *, give_up_at: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.give_up_at = give_up_at

    def open_watcher(self, hook: StreambankHook) -> WatchedWatcher:
        """What looks at the job, and at who watches it."""
        return WatchedWatcher(hook.watchers.job(self.job))

    def judge(self, view: JobView) -> Event | None:
        assert isinstance(view, WatchedView), "what this trigger looks with gives no other"
        if view.watched:
            return {"status": "watched", **view.to_dict()}
        if view.desired == "stopped":
            return {"status": "stopped", **view.to_dict()}
        if view.down and view.finished:
            return {"status": "finished", **view.to_dict()}
        if view.gave_up is not None:
            return {"status": "ended", **view.to_dict()}
        if utc_now() >= from_json_time(self.give_up_at):
            return {"status": "late", **view.to_dict()}
        return None


class PauseTrigger(BaseTrigger):
    """Waits until a moment; how long is left does not depend on which triggerer waits.

    Args:
        until: ISO-8601 time.
        remember: What the task will want to know when it goes on; the event gives it back.
    """

    def __init__(self, *, until: str, remember: Mapping[str, Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base class carries no types
        self.until = until
        self.remember = dict(remember or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow stores them."""
        return f"{__name__}.PauseTrigger", {"until": self.until, "remember": self.remember}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Sleep what is left."""
        left_s = (from_json_time(self.until) - utc_now()).total_seconds()
        await asyncio.sleep(max(0.0, left_s))
        event = {"status": "over", "remember": self.remember}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]  # nor does its event


class JobStatusTrigger(JobTrigger):
    """Waits until a job is in one of some states.

    Ends with `done`, or with `failed` where it is in one from which it will not get there.

    Args:
        failed_states: What ends the wait as a failure.
        kwargs: As for every `JobTrigger`.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("states", "failed_states")

    def __init__(self, *, states: Sequence[str], failed_states: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.states = list(states)
        self.failed_states = list(failed_states)

    def judge(self, view: JobView) -> Event | None:
        if view.state in self.states:
            return {"status": "done", **view.to_dict()}
        if view.state in self.failed_states and view.operation is None:
            return {"status": "failed", **view.to_dict()}
        return None


class BatchCommittedTrigger(JobTrigger):
    """Waits until a batch is committed.

    Ends with `done`, or with `failed` where the job is in a state in which none will come.

    Args:
        after_batch: Any batch above this one; -1 for the very first.
        accept_idle: Also be content with a driver whose first trigger found no data.
        failed_states: What ends the wait as a failure.
        kwargs: As for every `JobTrigger`; of a job with several queries the slowest counts.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ("after_batch", "accept_idle", "failed_states")

    def __init__(
        self,
        *,
        after_batch: int,
        accept_idle: bool = False,
        failed_states: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.after_batch = after_batch
        self.accept_idle = accept_idle
        self.failed_states = list(failed_states)

    def judge(self, view: JobView) -> Event | None:
        if view.batch is not None and view.batch > self.after_batch:
            return {"status": "done", "idle": False, **view.to_dict()}
        if self.accept_idle and view.triggered:
            return {"status": "done", "idle": True, **view.to_dict()}
        if view.state in self.failed_states and view.operation is None:
            return {"status": "failed", "idle": False, **view.to_dict()}
        return None
