"""How every trigger waits: look at the job, judge, sleep, and again, for as long as it takes.

A trigger holds nothing that its arguments do not say, so a triggerer that is restarted, or another one that
takes over, goes on where the first was. It never touches the job: when it is killed, the job goes on.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, dataclass_transform

from airflow.triggers.base import BaseTrigger, TriggerEvent

from streambank.core.errors import InputError, StreambankError
from streambank.core.options import as_duration_s
from streambank.core.units import from_json_time, say_duration, utc_now
from streambank_airflow.failures import describe
from streambank_airflow.hooks.declared import as_plain, given_for
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID, StreambankHook

if TYPE_CHECKING:
    from streambank_airflow.watch.job import JobView

Event = dict[str, Any]
"""What a wait ends with: flat, JSON, `status` says how (`done`, `failed`, `error`, ...)."""

_PLAIN = (str, int, float, bool, type(None))
PATIENCE = 5
"""How many looks in a row may fail at the storage before the wait itself fails."""
LEAST_S = 60.0
"""How long after a line, in seconds, a wait logs another one because the job gets on."""


def check_deferrable(arguments: Mapping[str, Any]) -> None:
    """Refuse what cannot wait in the triggerer, before anything is done that the wait is for.

    Raises:
        InputError: An argument cannot be handed to the triggerer, or its interval is no time (code
            `bad-option`).
    """
    for name, value in arguments.items():
        if not _is_plain(value):
            raise InputError(
                f"{name} is a {type(value).__name__}, which a task that defers cannot hand to the triggerer.",
                code="bad-option",
                hint=f"Give {name} as text or as a number; or set deferrable=False.",
            )
    interval = arguments.get("poll_interval_s", 1)
    if isinstance(interval, str) or not interval or interval < 0:
        raise InputError(
            f"poll_interval_s must be a number of seconds above 0, not {interval!r}.",
            code="bad-option",
            hint="Write 5, or leave it out.",
        )


def _is_plain(value: Any) -> bool:
    """Whether each release of Airflow gives the same back after a trigger's row was written and read."""
    if type(value) in (list, tuple):
        return all(_is_plain(one) for one in value)
    if type(value) is dict:
        return all(type(name) is str and _is_plain(one) for name, one in value.items())
    return type(value) in _PLAIN


class LooksAtJob(Protocol):
    """What looks at a job."""

    def look(self) -> JobView:
        """How it is now."""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class StoredTrigger(BaseTrigger):
    """A trigger whose arguments are its annotated fields, as those of a dataclass; Airflow stores them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(kw_only=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base class carries no types

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow stores them."""
        kind = type(self)
        names = [each.name for each in fields(self) if each.init]  # type: ignore[arg-type]  # see above
        return f"{kind.__module__}.{kind.__qualname__}", {
            name: as_plain(getattr(self, name)) for name in names
        }


class LookingTrigger(StoredTrigger):
    """What looks at one job again and again, every `poll_interval_s` seconds.

    Args:
        declaration: The job instead of a jobs file, as plain data. What `${...}` in it stands for is looked
            up in the triggerer, so that no value of it is stored with the trigger.
    """

    job: str
    jobs_file: str | None = None
    declaration: Mapping[str, Any] | None = None
    streambank_conn_id: str = DEFAULT_CONN_ID
    poll_interval_s: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.poll_interval_s = as_duration_s(self.poll_interval_s) or 0.0
        self.declaration = given_for(self.job, self.declaration)

    async def aopen_hook(self) -> StreambankHook:
        """The hook, for the triggerer."""
        return await StreambankHook.aopen(self.streambank_conn_id, self.jobs_file, self.declaration)

    def warn_of_failure(self, error: StreambankError, failures: int) -> None:
        """Say that a look failed which will be made again."""
        self.log.warning("Check %d of %d failed: %s", failures, PATIENCE, describe(error))


class LoggedWait:
    """What a wait says in the task's log: what is waited for, what changes, that it goes on, how it ended.

    A look comes every few seconds, for days if need be: a line for each would hide what counts.

    Args:
        log: The logger of the task, or of the trigger, whose lines are in the task's log, too.
        clock: Seconds on a clock that never jumps.
    """

    def __init__(self, log: Any, trigger: JobTrigger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._trigger, self._clock = log, trigger, clock
        self._began_s = self._said_s = clock()
        self._seen: tuple[Any, Any] | None = None
        self.view: JobView | None = None

    def look(self, view: JobView) -> None:
        """Say what is new: at once what the job is, at most once a minute how far it is."""
        trigger, now, before, self.view = self._trigger, self._clock(), self._seen, view
        state = (view.state, view.operation, view.desired, view.health == "unhealthy")
        self._seen = state, trigger.progress(view)
        silent_s = now - self._said_s
        if before is None:
            self._log.info("Waiting for %s. %s", trigger.awaits, trigger.words(view))
        elif before[0] != state or (before != self._seen and silent_s >= LEAST_S):
            self._log.info("%s", trigger.words(view))
        elif silent_s >= trigger.still_s:
            lasts = say_duration(now - self._began_s)
            self._log.info(
                "Still waiting, for %s so far, for %s. %s", lasts, trigger.awaits, trigger.words(view)
            )
        else:
            self._seen = before  # how far it is, is still to be said
            return
        self._said_s = now

    def end(self, event: Event) -> None:
        """Say how the wait ended."""
        lasted, how = say_duration(self._clock() - self._began_s), event.get("message") or event["status"]
        words = "" if self.view is None else f" {self._trigger.words(self.view)}"
        self._log.info("The wait for %s is over after %s: %s.%s", self._trigger.awaits, lasted, how, words)


class JobTrigger(LookingTrigger):
    """One wait on one job; its event gives back what the task is to `remember`."""

    remember: Mapping[str, Any] = field(default_factory=dict)
    still_s: ClassVar[float] = 600.0
    """How often it says that it still waits, in seconds."""

    @property
    @abstractmethod
    def awaits(self) -> str:
        """What is waited for, as it follows on *Waiting for*."""

    def progress(self, view: JobView) -> Hashable:
        """What of the job brings the wait nearer to its end: its changes are logged."""
        return None

    def words(self, view: JobView) -> str:
        """How the job is, as the log says it."""
        return view.words

    def open_watcher(self, hook: StreambankHook) -> LooksAtJob:
        """What looks at the job."""
        return hook.watchers.job(self.job)

    @abstractmethod
    def outcome(self, view: JobView) -> str | None:
        """How the wait ends, given how the job is now; None to go on waiting."""

    def said(self, view: JobView) -> Event:
        """What the event says besides."""
        return view.to_dict()

    def judge(self, view: JobView) -> Event | None:
        """What the wait ends with; None to go on waiting."""
        status = self.outcome(view)
        return None if status is None else {"status": status, **self.said(view)}

    def noted(self, view: JobView) -> JobView:
        """The same, for what else the triggerer does with each look; it may neither take time nor fail."""
        return view

    def held(self, event: Event, hook: StreambankHook) -> Event | None:
        """The same, or None where it cannot be acted on now and is waited for again; in a thread."""
        return event

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait in the triggerer: files are read in threads, so that other triggers are not held up."""
        failures = 0
        looks: tuple[StreambankHook, LooksAtJob] | None = None
        told = LoggedWait(self.log, self)
        while True:
            try:
                if looks is None:
                    hook = await self.aopen_hook()
                    looks = hook, await asyncio.to_thread(self.open_watcher, hook)
                hook, watcher = looks
                view = self.noted(await asyncio.to_thread(watcher.look))
                told.look(view)
                event, failures = self.judge(view), 0
                event = event and await asyncio.to_thread(self.held, event, hook)
            except StreambankError as error:
                failures += 1
                event = self._failure(error, failures)
            if event is not None:
                told.end(event)
                yield TriggerEvent({**event, "remember": self.remember})  # type: ignore[no-untyped-call]  # nor does its event
                return
            await asyncio.sleep(self.poll_interval_s)

    def wait_here(self, hook: StreambankHook) -> Event:
        """The same wait in this process, for tasks that do not defer."""
        watcher, told, event = self.open_watcher(hook), LoggedWait(self.log, self), None
        while event is None:
            view = watcher.look()
            told.look(view)
            if (event := self.judge(view)) is None:
                time.sleep(self.poll_interval_s)
        told.end(event)
        return event

    def _failure(self, error: StreambankError, failures: int) -> Event | None:
        if error.retryable and failures < PATIENCE:
            self.warn_of_failure(error, failures)
            return None
        # The task says what to do: no triggerer knows whether its DAG is one of ours.
        return {
            "status": "error",
            "message": f"{error.message} [{error.code}]",
            "code": error.code,
            "hint": error.hint,
            "retryable": error.retryable,
        }


class DeadlineTrigger(JobTrigger):
    """A wait that is `late` at a time, ISO-8601."""

    give_up_at: str

    @property
    def until(self) -> str:
        """Until when is waited, as it follows on what is waited for."""
        return f", at most until {self.give_up_at}"

    @property
    def is_over(self) -> bool:
        """Whether it is too late."""
        return utc_now() >= from_json_time(self.give_up_at)


class SensorTrigger(JobTrigger):
    """A wait that fails in some states of the job, unless an operation works on it, and else is `done`.

    A job whose driver is gone has not failed where whoever keeps it running is about to start another one.
    """

    failed_states: Sequence[str] = ()

    def failed(self, view: JobView) -> str | None:
        """How a wait stands that is not done."""
        return "failed" if view.state in self.failed_states and view.operation is None else None

    def held(self, event: Event, hook: StreambankHook) -> Event | None:
        if event["status"] != "failed" or event["state"] != "failed":
            return event
        from streambank_airflow.watch.job import WatchedWatcher

        view = WatchedWatcher(hook.watchers.job(self.job)).look()
        # Who begins to look cannot tell yet that a driver elsewhere has died: that was seen before.
        still = view.state in ("failed", "unknown") and view.epoch == event["epoch"]
        return event if still and view.operation is None and not view.watched else None
