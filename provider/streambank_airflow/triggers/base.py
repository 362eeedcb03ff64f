"""How every trigger waits: look at the job, judge, sleep, and again, for as long as it takes.

A trigger holds nothing that its arguments do not say, so a triggerer that is restarted, or another one that
takes over, goes on where the first was. It never touches the job: when it is killed, the job goes on.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol, dataclass_transform

from airflow.triggers.base import BaseTrigger, TriggerEvent

from streambank.core.errors import InputError, StreambankError
from streambank.core.units import from_json_time, utc_now
from streambank_airflow.failures import describe
from streambank_airflow.hooks.declared import as_plain
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID, StreambankHook

if TYPE_CHECKING:
    from streambank_airflow.watch.job import JobView

Event = dict[str, Any]
"""What a wait ends with: flat, JSON, `status` says how (`done`, `failed`, `error`, ...)."""

_PLAIN = (str, int, float, bool, type(None))
PATIENCE = 5
"""How many looks in a row may fail at the storage before the wait itself fails."""


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
    """What looks at one job again and again, every `poll_interval_s` seconds."""

    job: str
    jobs_file: str | None = None
    streambank_conn_id: str = DEFAULT_CONN_ID
    poll_interval_s: float = 5.0

    def warn_of_failure(self, error: StreambankError, failures: int) -> None:
        """Say that a look failed which will be made again."""
        self.log.warning("Check %d of %d failed: %s", failures, PATIENCE, describe(error))


class JobTrigger(LookingTrigger):
    """One wait on one job; its event gives back what the task is to `remember`."""

    remember: Mapping[str, Any] = field(default_factory=dict)

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

    def held(self, event: Event) -> Event | None:
        """The same, or None where it cannot be acted on now and is waited for again; in a thread."""
        return event

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait in the triggerer: files are read in threads, so that other triggers are not held up."""
        failures = 0
        watcher: LooksAtJob | None = None
        while True:
            try:
                if watcher is None:
                    hook = await StreambankHook.aopen(self.streambank_conn_id, self.jobs_file)
                    watcher = await asyncio.to_thread(self.open_watcher, hook)
                event = self.judge(self.noted(await asyncio.to_thread(watcher.look)))
                failures = 0
                event = event and await asyncio.to_thread(self.held, event)
            except StreambankError as error:
                failures += 1
                event = self._failure(error, failures)
            if event is not None:
                yield TriggerEvent({**event, "remember": self.remember})  # type: ignore[no-untyped-call]  # nor does its event
                return
            await asyncio.sleep(self.poll_interval_s)

    def wait_here(self, hook: StreambankHook) -> Event:
        """The same wait in this process, for tasks that do not defer."""
        watcher = self.open_watcher(hook)
        while (event := self.judge(watcher.look())) is None:
            time.sleep(self.poll_interval_s)
        return event

    def _failure(self, error: StreambankError, failures: int) -> Event | None:
        if error.retryable and failures < PATIENCE:
            self.warn_of_failure(error, failures)
            return None
        return {"status": "error", "message": describe(error), "retryable": error.retryable}


class DeadlineTrigger(JobTrigger):
    """A wait that is `late` at a time, ISO-8601."""

    give_up_at: str

    @property
    def is_over(self) -> bool:
        """Whether it is too late."""
        return utc_now() >= from_json_time(self.give_up_at)


class SensorTrigger(JobTrigger):
    """A wait that fails in some states of the job, unless an operation works on it, and else is `done`."""

    failed_states: Sequence[str] = ()

    def failed(self, view: JobView) -> str | None:
        """How a wait stands that is not done."""
        return "failed" if view.state in self.failed_states and view.operation is None else None
