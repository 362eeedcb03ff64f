"""How every trigger waits: look at the job, judge, sleep, and again, for as long as it takes.

A trigger holds nothing that its arguments do not say, so a triggerer that is restarted, or another one that
takes over, goes on where the first was. It never touches the job: when it is killed, the job goes on.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from airflow.triggers.base import BaseTrigger, TriggerEvent

from streambank.core.errors import InputError, StorageError, StreambankError
from streambank_airflow.failures import describe
from streambank_airflow.hooks.declared import as_plain
from streambank_airflow.hooks.streambank import DEFAULT_CONN_ID, StreambankHook

if TYPE_CHECKING:
    from streambank_airflow.watch.job import JobView

Event = dict[str, Any]
"""What a wait ends with: flat, JSON, `status` says how (`done`, `failed`, `error`, ...)."""

ARGUMENTS = ("job", "jobs_file", "streambank_conn_id", "poll_interval_s")
"""What every trigger on a job takes; attributes of the same names hold it."""

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


class Watcher(Protocol):
    """What looks at a job."""

    def look(self) -> JobView:
        """How it is now."""


class LookingTrigger(BaseTrigger):
    """What looks at one job again and again.

    Args:
        job: The job, or `job/query`.
        jobs_file: The file that declares it; None for the one that the connection names.
        poll_interval_s: Seconds between two looks.
    """

    own_arguments: ClassVar[tuple[str, ...]] = ()
    """Names of what a subclass takes beyond the arguments above; attributes of the same names hold it."""

    def __init__(
        self,
        *,
        job: str,
        jobs_file: str | None = None,
        streambank_conn_id: str = DEFAULT_CONN_ID,
        poll_interval_s: float = 5.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's base class carries no types
        self.job = job
        self.jobs_file = jobs_file
        self.streambank_conn_id = streambank_conn_id
        self.poll_interval_s = poll_interval_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow stores them."""
        names = (*ARGUMENTS, *self.own_arguments)
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {
            name: as_plain(getattr(self, name)) for name in names
        }

    def warn_of_failure(self, error: StreambankError, failures: int) -> None:
        """Say that a look failed which will be made again."""
        self.log.warning("Check %d of %d failed: %s", failures, PATIENCE, describe(error))


class JobTrigger(LookingTrigger):
    """One wait on one job.

    Args:
        remember: What the task will want to know when it goes on; its event gives it back.
        kwargs: As for every `LookingTrigger`.
    """

    def __init__(self, *, remember: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.remember = dict(remember or {})

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow stores them."""
        path, arguments = super().serialize()
        return path, {**arguments, "remember": self.remember}

    def open_watcher(self, hook: StreambankHook) -> Watcher:
        """What looks at the job."""
        return hook.watchers.job(self.job)

    @abstractmethod
    def judge(self, view: JobView) -> Event | None:
        """What the wait ends with, given how the job is now; None to go on waiting."""

    def noted(self, view: JobView) -> JobView:
        """The same, for what else the triggerer does with each look; it may neither take time nor fail."""
        return view

    def held(self, event: Event) -> Event | None:
        """The same, or None where it cannot be acted on now and is waited for again; in a thread."""
        return event

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait in the triggerer: files are read in threads, so that other triggers are not held up."""
        failures = 0
        watcher: Watcher | None = None
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

    def wait_here(self, hook: StreambankHook, timeout_s: float | None = None) -> Event:
        """The same wait in this process, for tasks that do not defer.

        Raises:
            StorageError: It took longer than `timeout_s` (code `wait-timeout`).
        """
        started = time.monotonic()
        watcher = self.open_watcher(hook)
        while True:
            event = self.judge(watcher.look())
            if event is not None:
                return event
            if timeout_s is not None and time.monotonic() - started >= timeout_s:
                raise StorageError(
                    f"The wait for job {self.job} timed out after {timeout_s:g} s.",
                    code="wait-timeout",
                    hint="Look at the job's status and at its driver's log.",
                )
            time.sleep(self.poll_interval_s)

    def _failure(self, error: StreambankError, failures: int) -> Event | None:
        if error.retryable and failures < PATIENCE:
            self.warn_of_failure(error, failures)
            return None
        return {"status": "error", "message": describe(error), "retryable": error.retryable}
