"""Triggers for asset watchers: a DAG starts when a stream has committed a batch, or is far enough.

`TellingTrigger` is how all of them look and tell, the one on SLAs (sla.py) too.

They wait for as long as a DAG that is not paused is scheduled by their asset. An event is told at least
once: a triggerer that dies within half a minute of telling one tells it again when it is back.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from streambank.core.errors import InputError, StreambankError
from streambank.core.units import parse_duration_s
from streambank.job.watermarks import EventTime
from streambank_airflow.airflow_versions import asset_state_store
from streambank_airflow.failures import describe
from streambank_airflow.hooks.streambank import StreambankHook
from streambank_airflow.notify.cursor import EventCursor, EventSpan, Memory, PositionMemory, next_news
from streambank_airflow.triggers.base import PATIENCE, LookingTrigger
from streambank_airflow.watch.event_time import LAST_MS, spelled

View = TypeVar("View")
Kept = TypeVar("Kept")
Sight = TypeVar("Sight", covariant=True)


class Looks(Protocol[Sight]):
    """What looks at a job again and again."""

    def look(self) -> Sight:
        """How it is now."""


class TellingTrigger(LookingTrigger, BaseEventTrigger, Generic[View, Kept]):
    """Tells what is new about a job, again and again.

    Args:
        checkpoint: The directory of a query that is not declared; `job` is just its name then.
    """

    checkpoint: str | None = None
    apart: ClassVar[tuple[str, ...]] = ()
    """Names of own arguments that make it another one, with its own memory."""

    @abstractmethod
    def open_watcher(self, hook: StreambankHook) -> Looks[View]:
        """What looks."""

    @abstractmethod
    def open_memory(self) -> Memory[Kept]:
        """Where it is kept what was told."""

    @abstractmethod
    def find_news(self, seen: View, told: Kept | None) -> tuple[list[dict[str, Any]], Kept | None]:
        """The events that are to be told now, and what has been told then."""

    @property
    def memory_key(self) -> str:
        """Under which key of the asset's state store it is kept what was told."""
        names = (self.job, self.jobs_file, self.checkpoint, *(getattr(self, name) for name in self.apart))
        what = "\n".join(map(str, names))
        return f"streambank.{type(self).__name__}.{sha256(what.encode()).hexdigest()[:12]}"

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look and tell, for ever; files are read in threads, so that other triggers are not held up.

        Raises:
            StreambankError: What somebody has to repair, or a storage that goes on failing. Airflow logs and
                counts it (`triggers.failed`), and makes the trigger again at once.
        """
        memory = self.open_memory()
        told = await memory.recall()
        watcher: Looks[View] | None = None
        failures = 0
        while True:
            try:
                if watcher is None:
                    hook = await self.aopen_hook()
                    watcher = await asyncio.to_thread(self.open_watcher, hook)
                seen = await asyncio.to_thread(watcher.look)
            except StreambankError as error:
                failures += 1
                # The next look begins with the declaration, which may have been mended.
                watcher = None
                if not error.retryable or failures >= PATIENCE:
                    self.log.error("No events of job %s are sent: %s", self.job, describe(error))
                    await asyncio.sleep(self.poll_interval_s)
                    raise
                self.warn_of_failure(error, failures)
            else:
                failures = 0
                events, told = self.find_news(seen, told)
                for said in events:
                    yield TriggerEvent(said)  # type: ignore[no-untyped-call]  # Airflow's has no types
                memory.note(told)
            await memory.keep()
            await asyncio.sleep(self.poll_interval_s)


class JobEventTrigger(TellingTrigger[EventTime, EventCursor]):
    """Tells how a stream gets on, again and again; a subclass says `every` how much."""

    apart: ClassVar[tuple[str, ...]] = ("every",)

    @property
    @abstractmethod
    def step(self) -> int:
        """How much further the stream has to be for another event."""

    @abstractmethod
    def reached(self, seen: EventTime) -> int | None:
        """How far it is; None for nowhere yet."""

    @abstractmethod
    def spell(self, news: EventSpan) -> dict[str, Any]:
        """What the event says of that."""

    def open_watcher(self, hook: StreambankHook) -> Looks[EventTime]:
        return hook.watchers.event_time(self.job, self.checkpoint)

    def open_memory(self) -> Memory[EventCursor]:
        return PositionMemory(asset_state_store(self), self.memory_key)

    def find_news(
        self, seen: EventTime, told: EventCursor | None
    ) -> tuple[list[dict[str, Any]], EventCursor | None]:
        news, told = next_news(self.reached(seen), told, self.step)
        if news is None:
            return [], told
        said = {
            "job": self.job,
            **self.spell(news),
            "batch": seen.batch,
            "watermark": spelled(seen.watermark_ms),
            "again": news.again,
        }
        return [said], told


class BatchCommittedEventTrigger(JobEventTrigger):
    """Tells that batches were committed: `after_batch` (up to where the event before told), `batch`.

    Of a job with several queries the slowest counts.

    Args:
        every: After how many batches, at least, another event is told.
    """

    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise InputError(
                f"every must be at least one batch, not {self.every}.",
                code="bad-option",
                hint="Leave it out for one event per batch.",
            )

    @property
    def step(self) -> int:
        return self.every

    def reached(self, seen: EventTime) -> int | None:
        return seen.batch

    def spell(self, news: EventSpan) -> dict[str, Any]:
        return {"after_batch": news.after}


class WatermarkEventTrigger(JobEventTrigger):
    """Tells that intervals of event time are complete: `start` (the `end` of the event before), `end`.

    Where the watermark has leapt over several intervals at once, one event tells of all of them; of a job
    with several queries all have to pass.

    Args:
        every: Length of an interval, such as `15m`, `1h` or `1d`, counted from 1970-01-01 in UTC.
    """

    every: str = "1h"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._every_ms = round(parse_duration_s(self.every) * 1000)
        if self._every_ms < 1000:
            raise InputError(
                f"every must be at least a second, not {self.every}.",
                code="bad-option",
                hint='Such as "1h".',
            )

    @property
    def step(self) -> int:
        return self._every_ms

    def reached(self, seen: EventTime) -> int | None:
        if seen.watermark_ms is None:
            return None
        return min(seen.watermark_ms, LAST_MS) // self._every_ms * self._every_ms

    def spell(self, news: EventSpan) -> dict[str, Any]:
        return {"start": spelled(news.after), "end": spelled(news.upto)}
